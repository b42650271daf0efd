"""Beam search in which a token is one function of tensors of fixed shapes, so that a GPU can replay it as one graph.

:class:`RecordedSearch` returns the hypotheses, order and scores of fairseq's ``SequenceGenerator``.
"""

from .recorded_search import RecordedSearch
from .search_settings import SearchSettings, unsupported_option

__all__ = ["RecordedSearch", "SearchSettings", "unsupported_option"]
