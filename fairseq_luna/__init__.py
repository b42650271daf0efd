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

    Importing ``fairseq_luna.models``, which this function does, registers the models and patches fairseq. fairseq's log
    messages below a warning are silenced, also during translation, unless ``LOGLEVEL`` is in the environment or its
    logger has a level.

    Args:
        path: a checkpoint, an ensemble of checkpoints with ``:`` between them, or a folder with ``checkpoint_best.pt``,
            ``checkpoint_last.pt`` or ``model.pt``.
        device: device of the model, such as "cuda".
        data: folder with the dictionaries, or the folder that ``fairseq-luna prepare`` made. None looks for them beside
            the checkpoint, at the path of the training, and at the place where that path leads from the checkpoint, so
            that the folder of a training can be moved.
        pieces: SentencePiece model (``*.model``) or BPE codes of subword-nmt, which needs tokenized text. None looks
            for a subword model beside the checkpoint and the data. "none" means that the text is in subwords already.
        source_lang, target_lang: languages, if the checkpoint does not say or has several.
        max_tokens, batch_size: maximum number of tokens per batch, padding included, and of texts. None: as in
            training.
        max_source_positions, max_target_positions: maximum number of tokens in a text and in a translation. None: as in
            training.
        fp16, bf16: compute in half precision; fp16 needs a GPU.
        search: beam search, "fairseq" or "recorded". The second finds the same translations, and on a GPU replays each
            step as one CUDA graph. None: as the checkpoint says, by default "fairseq".
        engine: "torch", or "onnx" for a CPU. "onnx" exports the model once, to a folder beside the checkpoint, which
            takes a minute or more; from then on it translates several times as fast. The result is a
            :class:`fairseq_luna.deployed.Translator`, whose ``translate`` has the same option names.
        overrides: other options of fairseq's task, model, subwords and generation, such as ``lenpen=0.6``, instead of
            the options in the checkpoint.

    Raises:
        TypeError: the checkpoint has no such option, or ``path`` is not a name.
        UsageError: a file is missing or cannot be used, the languages are not the checkpoint's, or the device cannot be
            used or cannot compute in this precision.
    """
    options = {name: value for name, value in dict(locals()).items() if name not in ("path", "overrides", "engine")}
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"load: path must be a checkpoint's name, a str or os.PathLike; there is {path!r:.50}")
    if engine != "torch":
        return importlib.import_module(f"{__name__}.exported_engine").load_exported(path, engine, options | overrides)
    from . import silenced_logs

    with silenced_logs.silence_fairseq():
        importlib.import_module(f"{__name__}.models")
        loading = importlib.import_module(f"{__name__}.loading")
    return loading.load_translator(path, **options, **overrides)
