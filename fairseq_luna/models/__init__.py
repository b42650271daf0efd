"""The plugin, imported by ``--user-dir``: patches fairseq and registers models, the optimizer and the schedule."""
# ruff: noqa: E402 (fairseq is patched before anything else of it is imported)

from .. import environment, usage_error

if (_problem := environment.fairseq_problem()) is not None:
    raise ImportError(_problem)

from .. import compat

compat.apply_patches()
usage_error.report_in_one_line()

from .. import criterions
from ..optim import fairseq_apollo, milestone_lr
from ..recorded_search import sequence_generator
from ..recorded_training import trainer
from . import block, block_pyramid, escaped_characters, fastformer, language_pairs, luna, mixed, roberta

fairseq_apollo.wrap_gradient_clipping()
sequence_generator.install_recorded_search()
trainer.install_recorded_training()
language_pairs.refuse()
escaped_characters.restore()

__all__ = [
    "block",
    "block_pyramid",
    "criterions",
    "fairseq_apollo",
    "fastformer",
    "luna",
    "milestone_lr",
    "mixed",
    "roberta",
]
