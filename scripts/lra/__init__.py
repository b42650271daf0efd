"""The Long Range Arena's tasks (arXiv 2011.04006) as labels and lines of symbols."""
