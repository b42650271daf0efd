"""What check_cuda.py runs on a CUDA device that computes nothing, and what it sees."""
