"""The settings of the new model, its parameters from those of the old one, and the table of both."""
