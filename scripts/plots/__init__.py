"""The pictures of plot_attention.py."""
