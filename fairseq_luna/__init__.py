"""Luna, Fastformer and block attention, and the Apollo optimizer, for torch and for fairseq.

Importing this package has no side effects. ``import fairseq_luna.models`` patches fairseq and registers the models, the
optimizer and the schedule with it; ``--user-dir`` makes fairseq do this.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from fairseq_luna.models.shared.translator import TorchTranslator

__version__ = "0.1.0"


def load(
    path: str | os.PathLike[str],
    *,
    device: "str | torch.device" = "cpu",
    data: str | os.PathLike[str] | None = None,
    pieces: str | os.PathLike[str] | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    max_tokens: int | None = None,
    batch_size: int | None = None,
    max_source_positions: int | None = None,
    max_target_positions: int | None = None,
    fp16: bool = False,
    bf16: bool = False,
    search: str | None = None,
    engine: str = "torch",
    **overrides: Any,
) -> "TorchTranslator":
    """Load a trained translation model of this package or of fairseq.

        translator = fairseq_luna.load("checkpoints")
        print(translator.translate("Two dogs run."))

    This imports ``fairseq_luna.models``, which registers the models and patches fairseq. What fairseq logs below a
    warning is left out, here and in translating, unless ``LOGLEVEL`` is in the environment or its logger has a level.

    Args:
        path: a checkpoint, several with ``:`` between them (an ensemble), or a folder with ``checkpoint_best.pt``,
            ``checkpoint_last.pt`` or ``model.pt``.
        device: of the model, such as "cuda".
        data: the folder with the dictionaries, or the one that ``fairseq-luna prepare`` made; None: they are looked
            for beside the checkpoint, at the training's path, and where that path leads from the checkpoint, so that a
            training's folder can be moved.
        pieces: a SentencePiece model (``*.model``) or codes of subword-nmt; None: those beside the checkpoint or the
            data, which a model of pieces needs. "none": text is in pieces already. Text for codes must be tokenised.
        source_lang, target_lang: languages, if the training was not told them, or of a model of several.
        max_tokens, batch_size: pieces with padding, and texts, in a batch; None: the training's.
        max_source_positions, max_target_positions: longest text and translation in pieces; None: the training's.
        fp16, bf16: compute in half precision, fp16 on a GPU alone.
        search: the beam search, "fairseq" or "recorded", which finds the same translations and on a GPU replays a token
            as one graph; None: the checkpoint's, by default fairseq's.
        engine: "torch", or "onnx" for a CPU: the model is exported once, beside the checkpoint, which takes a minute or
            more, and translates several times as fast from then on. The result is a
            :class:`fairseq_luna.deployed.Translator`, whose ``translate`` has the same names for what it can do.
        overrides: other options of fairseq's task, model, subwords and generation, such as ``lenpen=0.6``, which
            replace those in the checkpoint.

    Raises:
        TypeError: the checkpoint has no such option, or ``path`` is no name.
        UsageError: a file is missing or cannot be used, the languages are not the checkpoint's, or the device cannot be
            used or cannot compute in this precision.
    """
    given = {name: value for name, value in dict(locals()).items() if name not in ("path", "overrides", "engine")}
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"load: path must be a checkpoint's name, a str or os.PathLike; there is {path!r:.50}")
    if engine != "torch":
        return importlib.import_module(f"{__name__}.exported_engine").load_exported(path, engine, given | overrides)
    from . import quiet

    with quiet.fairseq():
        importlib.import_module(f"{__name__}.models")
        loading = importlib.import_module(f"{__name__}.loading")
    return loading.load(path, **given, **overrides)
