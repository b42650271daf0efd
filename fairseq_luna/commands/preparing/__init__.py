"""Text to the data of fairseq-train."""
