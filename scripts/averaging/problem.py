"""What cannot be averaged."""


class CannotAverage(ValueError):
    """Bad input; the message names the file or flag and the mend, in one line."""
