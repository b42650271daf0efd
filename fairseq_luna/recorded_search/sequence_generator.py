"""fairseq's ``SequenceGenerator`` with the recorded search, for models whose ``--search`` asks for it."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_luna import cuda_graph
from fairseq_luna.cuda_graph import Record
from fairseq_luna.monkeypatch import wrap_method

from .history import Hypothesis
from .recorded_search import RecordedSearch
from .search_settings import unsupported_option

logger = logging.getLogger(__name__)

FAIRSEQ, RECORDED = "fairseq", "recorded"
# Scores of two searches, whose kernels round differently, that count as equal, by the dtype of the model.
CLOSE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}

Hypotheses = list[list[Hypothesis]]


def install_recorded_search() -> None:
    """Wrap fairseq's ``SequenceGenerator``; call once per process.

    A generator for one model of this package whose config says ``search="recorded"`` uses :class:`.RecordedSearch`,
    unless an option needs fairseq's own search.
    """

    @wrap_method(SequenceGenerator, "_generate")
    def _generate(
        original: Callable[..., Hypotheses],
        self: SequenceGenerator,
        sample: Any,
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> Hypotheses:
        def by_fairseq() -> Hypotheses:
            return original(self, sample, prefix_tokens, constraints, bos_token)

        if not asks_for_recorded_search(self):
            return by_fairseq()
        if (option := unsupported_option(self, prefix_tokens, constraints)) is not None:
            say_once(self, f"fairseq's search is used, because the recorded search does not have {option}")
            return by_fairseq()
        return recorded_or_fairseq(self, sample, bos_token, by_fairseq)


def asks_for_recorded_search(generator: SequenceGenerator) -> bool:
    """Whether a model's config has ``search="recorded"``."""
    return any(getattr(getattr(model, "cfg", None), "search", FAIRSEQ) == RECORDED for model in generator.model.models)


def recorded_or_fairseq(
    generator: SequenceGenerator, sample: Any, bos_token: int | None, by_fairseq: Callable[[], Hypotheses]
) -> Hypotheses:
    """The hypotheses of the recorded search.

    On a GPU the first batch is decoded by fairseq's search too. If the hypotheses differ beyond ties, or a token cannot
    be recorded, a warning says so, and fairseq's search decodes this batch and all later ones.
    """
    search: RecordedSearch | None = generator.__dict__.get("recorded_search")
    first = search is None
    if search is None:
        search = RecordedSearch(generator, record=search_recorder(sample["net_input"]["src_tokens"].device))
        # nn.Module would register a module; this is none, and refers to the generator.
        generator.__dict__["recorded_search"] = search
    if generator.__dict__.get("recorded_search_failed"):
        return by_fairseq()
    if search.record is None or not first:
        return search.generate(sample, bos_token)
    expected = by_fairseq()
    try:
        hypotheses = search.generate(sample, bos_token)
        dtype = next(generator.model.single_model.parameters()).dtype
        same = agree(hypotheses, expected, CLOSE.get(dtype, CLOSE[torch.float32]))
        problem = None if same else "its hypotheses differ from the hypotheses of fairseq's search"
    except Exception as error:  # of capturing: torch has no common class for them
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    if problem is not None:
        generator.__dict__["recorded_search_failed"] = True
        logger.warning("the recorded search is not used, fairseq's is: %s", problem)
    return expected


def search_recorder(device: torch.device) -> Record | None:
    """How a token is recorded on ``device``; None: it is computed eagerly."""
    return cuda_graph.record if device.type == "cuda" else None


def agree(hypotheses: Hypotheses, expected: Hypotheses, tolerance: float) -> bool:
    """Whether two searches return hypotheses with the same scores; where scores are tied, tokens may differ."""
    for nbest, expected_nbest in zip(hypotheses, expected, strict=True):
        if len(nbest) != len(expected_nbest):
            return False
        scores, expected_scores = (
            torch.tensor([float(each["score"]) for each in some]) for some in (nbest, expected_nbest)
        )
        if not torch.allclose(scores, expected_scores, rtol=tolerance, atol=tolerance):
            return False
    return True


def say_once(generator: SequenceGenerator, message: str) -> None:
    """Log a warning, which ``translate`` and ``load`` show too, once for each generator."""
    messages = generator.__dict__.setdefault("messages_said", set())
    if message not in messages:
        messages.add(message)
        logger.warning(message)
