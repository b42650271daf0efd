"""``fairseq_luna.load``: a trained model, its dictionaries and its subword model from a checkpoint."""

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

from . import models as activated  # noqa: F401 (registers the models, applies the patches)
from . import quiet
from .commands.checkpoints import check_finite
from .models.shared.translator import TorchTranslator
from .piece_models import LEAST_KNOWN, known_share, restricted
from .subwords import mark_of
from .usage_error import UsageError

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt")
CODES = ("codes", "bpecodes")
NONE = "none"
# Pieces of a batch, for models trained without --max-tokens.
BATCH = 4096


@quiet.fairseq()
def load(
    path: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    pieces: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> TorchTranslator:
    """Load a trained translation model of this package or of fairseq, on the CPU.

    Args:
        path: a checkpoint, several with ``:`` between them (an ensemble), or a folder with ``checkpoint_best.pt``,
            ``checkpoint_last.pt`` or ``model.pt``.
        data: the folder with the dictionaries; None: that of the checkpoint if it has them, else the training's.
        pieces: a SentencePiece model (``*.model``) or codes of subword-nmt; None: those beside the checkpoint or the
            data, which a model of pieces needs. "none": text is in pieces already. Text for codes must be tokenised.
        overrides: options of fairseq that replace those in the checkpoint, such as ``source_lang="en"``.

    Raises:
        UsageError: a file is missing or cannot be used.
    """
    warnings.filterwarnings("ignore", message=".*pin_memory")  # of fairseq's batches on a CPU
    files = _checkpoints(path)
    folder = files[0].parent
    if data is None and any(folder.glob("dict.*.txt")):
        data = folder
    # What the training read and the model has: its tokenizer, for BLEU, and embeddings.
    overrides = {"eval_bleu": False, "encoder_embed_path": None, "decoder_embed_path": None, **overrides}
    if data is not None:
        overrides["data"] = str(data)
    loaded, cfg, task = _trained(path, files, overrides)
    if cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
        cfg.dataset.max_tokens = BATCH
    if pieces is not None:
        cfg.bpe = None
    try:
        translator = TorchTranslator(cfg, task, loaded)
    except OSError as error:
        raise UsageError(f"{error}; pieces= (--pieces) names the subword model") from error
    if translator.bpe is None and (pieces is None or os.fspath(pieces) != NONE):
        binary = Path(str(cfg.task.data).split(os.pathsep)[0])
        beside = (folder, binary, binary.parent, binary.parent / "sentencepiece")
        found = Path(pieces) if pieces is not None else _pieces(beside)
        if found is not None:
            translator.bpe = _subwords(found)
        elif mark := mark_of(translator.src_dict):
            raise UsageError(
                f"{path}: its dictionary has pieces of words ({mark}), and no *.model or codes are beside it or the"
                f" data; name the subword model with pieces= (--pieces), or {NONE} for text that is in pieces"
            )
    _use_known_pieces(translator)
    return translator


def _trained(path: str | os.PathLike[str], files: Sequence[Path], overrides: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The models, config and task of the checkpoints ``files`` at ``path``."""
    untold = UsageError(
        f"{path}: the training was not told its languages; "
        "give source_lang= and target_lang= (--source-lang, --target-lang)"
    )
    try:
        loaded, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(file) for file in files], arg_overrides=overrides
        )
    except OSError as error:
        raise UsageError(
            f"{error.filename}: {error.strerror}; if the data has moved, or the training's path to it was relative to "
            "another folder, name the folder with its dictionaries with --data (in Python data=)"
        ) from error
    except Exception as error:
        if "infer language pair" not in str(error):
            raise
        raise untold from error
    settings = getattr(task, "cfg", None) or getattr(task, "args", None)
    if None in (getattr(settings, "source_lang", ""), getattr(settings, "target_lang", "")):  # a task of several
        raise untold
    if not all(hasattr(model, "encoder") and hasattr(model, "decoder") for model in loaded):
        raise UsageError(f"{path}: its model is not a translation model")
    for file, model in zip(files, loaded, strict=True):
        check_finite(file, dict(model.named_parameters()))
    return loaded, cfg, task


def _checkpoints(path: str | os.PathLike[str]) -> list[Path]:
    """The checkpoint at ``path``, or those of an ensemble; each may be named by its folder."""
    parts = [os.fspath(path)] if Path(path).exists() else os.fspath(path).split(os.pathsep)
    return [_checkpoint(Path(part)) for part in parts]


def _checkpoint(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such checkpoint")
    for name in CHECKPOINTS:
        if (file := path / name).is_file():
            return file
    inside = path / "checkpoints"
    wanted = f"give {inside}" if inside.is_dir() else "name the checkpoint"
    raise UsageError(f"{path}: has none of {', '.join(CHECKPOINTS)}; {wanted}")


def _pieces(folders: Iterable[Path]) -> Path | None:
    """The subword model in the first of ``folders`` that has one."""
    for folder in folders:
        found = [*folder.glob("*.model"), *(folder / name for name in CODES if (folder / name).is_file())]
        if len(found) > 1:
            raise UsageError(
                f"{folder}: has {', '.join(sorted(file.name for file in found))}; choose with pieces= (--pieces)"
            )
        if found:
            return found[0]
    return None


def _use_known_pieces(translator: TorchTranslator) -> None:
    """Let the SentencePiece model cut text into pieces of the dictionary alone, where it can.

    Raises:
        UsageError: it is of another text, and its pieces would be unknown words.
    """
    if not isinstance(translator.bpe, SentencepieceBPE):
        return
    words = translator.src_dict.symbols[translator.src_dict.nspecial :]
    if (share := known_share(translator.bpe.sp, words)) < LEAST_KNOWN:
        raise UsageError(
            f"the SentencePiece model has {round(share * len(words))} of the {len(words)} pieces of the dictionary, so"
            f" that it is another model's; name the right one with pieces= (--pieces), or {NONE} for text that is in"
            " pieces"
        )
    translator.bpe.sp = restricted(translator.bpe.sp, translator.src_dict.indices)


def _subwords(pieces: Path) -> Any:
    """fairseq's reader of a subword model."""
    if not pieces.is_file():
        raise UsageError(f"{pieces}: there is no such subword model")
    try:
        if pieces.suffix == ".model":
            return SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(pieces)))
        return SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=str(pieces)))
    except ImportError as error:
        raise UsageError(f"{pieces}: {error}") from error
    except (OSError, RuntimeError, ValueError, SystemExit) as error:  # subword-nmt exits
        raise UsageError(f"{pieces}: is no subword model, or cannot be read") from error
