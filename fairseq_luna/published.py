"""Differences of attentions from their published layers: data for ``scripts/differences_page.py``.

A module with attentions has ``PUBLISHED``: the layer that each of its attentions follows, by the name of the attention.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """A place where an attention is not the published layer, in words for a table."""

    place: str  # such as "channels of values"
    ours: str
    theirs: str
    why: str


class Published(NamedTuple):
    """The layer that an attention follows, and what is known to differ from it: an empty tuple, if nothing is."""

    layer: str  # its paper, and the code that it was compared with; or why there is none
    differences: tuple[Difference, ...] = ()
