"""Recipes of examples/ as fairseq reads and builds them, without training."""
