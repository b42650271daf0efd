"""Dictionaries of made-up words."""

from fairseq.data import Dictionary


def joint_dictionary(entries: int) -> Dictionary:
    """``w0``, ``w1`` and so on after fairseq's special symbols, ``entries`` in total."""
    made = Dictionary()
    for number in range(entries - len(made)):
        made.add_symbol(f"w{number}")
    return made
