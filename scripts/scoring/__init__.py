"""Scores of papers that ``fairseq-luna score`` does not have: of tokens, and of summaries."""
