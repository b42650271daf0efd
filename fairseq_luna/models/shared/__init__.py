"""The parts that all families of encoder-decoders share; a family adds its flags and its attention."""
