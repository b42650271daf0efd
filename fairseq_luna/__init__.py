"""Luna, Fastformer and block attention, and the Apollo optimizer, for torch and for fairseq.

Importing this package has no side effects. ``import fairseq_luna.models`` patches fairseq and registers the models, the
optimizer and the schedule with it; ``--user-dir`` makes fairseq do this.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_luna.models.shared.translator import TorchTranslator

__version__ = "0.1.0"


def load(path: str | os.PathLike[str], **options: Any) -> "TorchTranslator":
    """Load a trained model to translate with: see :func:`fairseq_luna.loading.load`.

        translator = fairseq_luna.load("checkpoints")
        print(translator.translate("Two dogs run."))

    This imports ``fairseq_luna.models``, which registers the models and patches fairseq. What fairseq logs below a
    warning is left out, here and in translating, unless ``LOGLEVEL`` is in the environment or its logger has a level.
    """
    from . import quiet

    with quiet.fairseq():
        importlib.import_module(f"{__name__}.models")
        loading = importlib.import_module(f"{__name__}.loading")
    return loading.load(path, **options)
