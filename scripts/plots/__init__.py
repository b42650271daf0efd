"""The attention maps of plot_attention.py and the curves of plot_curves.py."""
