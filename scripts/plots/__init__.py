"""What plot_attention.py draws."""
