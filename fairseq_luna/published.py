"""Differences of attentions and Apollo from their published forms.

They are data for ``fairseq-luna info --attention`` and, through ``scripts/differences_page.py``, for a page of docs.

An attention gives a ``Published`` in its declaration (``fairseq_luna.modules.declaration.Attention``), Apollo in
``fairseq_luna.optim.apollo.PUBLISHED``.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """A place where an attention is not the published layer: the cells of a table's row."""

    place: str  # such as "channels of values"
    in_this_package: str
    in_the_published_layer: str
    reason: str


class Published(NamedTuple):
    """The layer that an attention follows, and what is known to differ from it: an empty tuple, if nothing is."""

    layer: str  # its paper, and the code that it was compared with; or why there is none
    differences: tuple[Difference, ...] = ()
