"""What cannot be plotted."""


class CannotPlot(ValueError):
    """Bad input; the message names the file or flag and the mend, in one line."""
