"""What plot_attention.py and plot_curves.py are made of."""
