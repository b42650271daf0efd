"""What scripts/benchmark.py measures: a file for each of its subcommands, and how time and memory are taken."""
