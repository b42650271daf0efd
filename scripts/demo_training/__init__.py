"""How demo.py trains: its recipes and its steps."""
