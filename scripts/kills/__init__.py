"""The moments at which kill_rounds.py kills a training."""
