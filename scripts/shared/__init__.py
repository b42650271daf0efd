"""What several commands share: how they report errors, run fairseq's commands and write files."""
