"""The commands of scripts/benchmark.py, and how they measure time and memory."""
