"""Reading fairseq-generate's output and scoring it."""
