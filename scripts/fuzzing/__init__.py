"""Random configurations: what is drawn, what each must do or say, and what became of them."""
