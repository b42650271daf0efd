"""Models with the parameters and inputs of recorded ones."""
