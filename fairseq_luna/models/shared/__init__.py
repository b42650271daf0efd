"""What every family of encoder-decoders shares; a family adds its flags and its attention."""
