"""Conversion of a checkpoint: the settings of the new model, its parameters, and the new checkpoint."""
