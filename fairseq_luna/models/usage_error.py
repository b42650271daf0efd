"""Bad input, said in one line."""


class UsageError(ValueError):
    """A flag, or a combination of flags, that cannot be used; the message names it and the mend."""
