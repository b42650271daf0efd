"""A trained model as ONNX graphs that share one file of weights."""
