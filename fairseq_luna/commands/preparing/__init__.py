"""Steps of ``fairseq-luna prepare``."""
