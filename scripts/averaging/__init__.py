"""Choosing checkpoints, reading them safely, and their arithmetic mean."""
