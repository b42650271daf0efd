"""The attention matrix of any attention that has one, and its measures."""
