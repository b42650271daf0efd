"""Drawing configurations of fairseq-train, and trying them; see fuzz.py."""
