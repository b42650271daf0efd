"""``fairseq_luna.load``: a trained model, its dictionaries and its subword model from a checkpoint."""

import logging
import os
import warnings
from argparse import Namespace
from collections.abc import Iterable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig
from fairseq.dataclass.utils import overwrite_args_by_name
from omegaconf import OmegaConf

from . import load, silenced_logs
from . import models as activated  # noqa: F401 (registers the models, applies the patches)
from .checkpoint_files import check_finite, read_checkpoint
from .dictionary_fingerprints import dictionary_fingerprints, dictionary_mismatch, recorded_fingerprints
from .model_files import NONE, PathLike, binary_data, check_files, data_folder, subword_model
from .models.shared.config import SEARCHES
from .models.shared.translator import TorchTranslator
from .models.shared.translator_options import check_option_names
from .piece_models import LEAST_KNOWN, known_share, restrict_to_words
from .search_options import check_numbers
from .subwords import subword_marker
from .trained_languages import describe_languages, known_languages, language_mismatch, languages, untrained_pair
from .usage_error import UsageError

logger = logging.getLogger(__name__)

# Tokens per batch, for models trained without --max-tokens.
BATCH = 4096
# Parts of a checkpoint's settings that affect translation; the other parts affect only training.
READ = ("task", "model", "tokenizer", "bpe")


@silenced_logs.silence_fairseq()
def load_translator(
    path: PathLike,
    *,
    device: str | torch.device = "cpu",
    data: PathLike | None = None,
    pieces: PathLike | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    max_tokens: int | None = None,
    batch_size: int | None = None,
    max_source_positions: int | None = None,
    max_target_positions: int | None = None,
    fp16: bool = False,
    bf16: bool = False,
    search: str | None = None,
    **overrides: Any,
) -> TorchTranslator:
    """Implementation of :func:`fairseq_luna.load` for engine "torch", which explains the arguments."""
    warnings.filterwarnings("ignore", message=".*pin_memory")  # of fairseq's batches on a CPU
    sizes = {"max_tokens": max_tokens, "batch_size": batch_size}
    lengths = {"max_source_positions": max_source_positions, "max_target_positions": max_target_positions}
    check_numbers({**sizes, **lengths})
    if search not in (None, *SEARCHES):
        raise UsageError(f"search {search} (--search): choose one of {', '.join(SEARCHES)}")
    files = check_files(path, data, pieces)
    precision = _precision(device, fp16=fp16, bf16=bf16)  # before anything that takes long
    requested = {"source_lang": source_lang, "target_lang": target_lang, **lengths}
    overrides |= {name: value for name, value in requested.items() if value is not None}
    loaded, cfg, task = _load_checkpoints(path, files, overrides, data)
    for model in loaded:
        if search is not None and hasattr(model, "cfg"):  # only models of this package read it
            model.cfg.search = search
    _set_batch_size(cfg.dataset, max_tokens, batch_size)
    translator = _build_translator(path, files[0], loaded, cfg, task, pieces)
    translator.to(device)
    if precision is not None:
        translator.models.to(precision)
    return translator


def _set_batch_size(dataset: Any, max_tokens: int | None, batch_size: int | None) -> None:
    """Set the maximum number of tokens, or of sentences, of a batch in fairseq's config ``dataset``."""
    if max_tokens or batch_size or (dataset.max_tokens is None and dataset.batch_size is None):
        dataset.max_tokens = max_tokens or (None if batch_size else BATCH)
        dataset.batch_size = batch_size


def _build_translator(
    path: PathLike, file: Path, models: list[Any], cfg: Any, task: Any, pieces: PathLike | None
) -> TorchTranslator:
    """A translator with the subword model of the training, or ``pieces``.

    Raises:
        UsageError: the subword model is missing, is none, or is another model's.
    """
    if pieces is not None:
        cfg.bpe = None
    try:
        translator = TorchTranslator(cfg, task, models)
    except OSError as error:
        raise UsageError(f"{error}; pieces= (--pieces) names the subword model") from error
    if translator.bpe is None and (pieces is None or os.fspath(pieces) != NONE):
        folder, binary = file.parent, Path(str(cfg.task.data).split(os.pathsep)[0])
        beside = (folder, binary, binary.parent, binary.parent / "sentencepiece")
        subword_file = Path(pieces) if pieces is not None else subword_model(beside)
        if subword_file is not None:
            translator.bpe = _read_subword_model(subword_file)
        elif mark := subword_marker(translator.src_dict):
            raise UsageError(
                f"{path}: its dictionary has pieces of words ({mark}), and no *.model or codes are beside it or the"
                f" data; name the subword model with pieces= (--pieces), or {NONE} for text that is in pieces"
            )
    _use_known_pieces(translator)
    return translator


def _precision(device: Any, *, fp16: bool, bf16: bool) -> torch.dtype | None:
    """The dtype to convert the weights to, or None.

    Raises:
        UsageError: there is no such ``device``, or it cannot compute in this precision.
    """
    try:
        kind = torch.empty(0, device=device).device.type
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        if reason.startswith("Expected one of"):  # and torch's list of about 20 kinds
            reason = "torch knows no such device; give cpu, cuda or cuda:1"
        advice = "" if torch.cuda.is_available() else "; this torch finds no GPU: leave it out, for a CPU"
        raise UsageError(f"device {device} (--device): {reason}{advice}") from error
    if fp16 and bf16:
        raise UsageError("fp16, bf16 (--fp16, --bf16): give one of them")
    if fp16 and kind == "cpu":
        raise UsageError("fp16 (--fp16): is for GPUs; give bf16 (--bf16) on a CPU, or device (--device cuda)")
    if bf16 and kind == "cuda" and not torch.cuda.is_bf16_supported():
        raise UsageError("bf16 (--bf16): this GPU cannot compute in it; give fp16 (--fp16)")
    return torch.float16 if fp16 else torch.bfloat16 if bf16 else None


def _load_checkpoints(
    path: PathLike, files: Sequence[Path], overrides: dict[str, Any], data: PathLike | None
) -> tuple[list[Any], Any, Any]:
    """Load the models, config and task of the checkpoints ``files`` at ``path``."""
    untold = UsageError(
        f"{path}: the checkpoint does not record its languages; "
        "give source_lang= and target_lang= (--source-lang, --target-lang)"
    )
    loaded: list[Any] = []
    cfg = task = None
    trained: dict[str, str] = {}
    for file in files:
        state = read_checkpoint(file)
        settings = settings_by_part(file, state)
        check_override_names(overrides, settings)
        check_numbers(overrides)
        place = data_place(file, settings, data)
        trained = _check_languages(file, settings["task"], overrides, trained, place)
        replaced = _apply_overrides(state, overrides, place)
        try:
            model, cfg, task = _build_model(file, state, replaced, task)
        except UnknownLanguages as error:
            raise untold from error
        _check_dictionaries(file, state, task)
        loaded.append(model)
    of_task = getattr(task, "cfg", None) or getattr(task, "args", None)
    if None in (getattr(of_task, "source_lang", ""), getattr(of_task, "target_lang", "")):  # a task of several
        raise untold
    if not all(hasattr(model, "encoder") and hasattr(model, "decoder") for model in loaded):
        raise UsageError(f"{path}: its model is not a translation model")
    for file, model in zip(files, loaded, strict=True):
        check_finite(file, dict(model.named_parameters()))
    return loaded, cfg, task


def check_override_names(names: Iterable[str], settings: dict[str, dict[str, Any]]) -> None:
    """Raises TypeError for a name that no option of :func:`fairseq_luna.load` and no setting of a checkpoint has.

    Args:
        settings: the checkpoint's, from :func:`settings_by_part`.
    """
    check_option_names("load", names, *(name for part in READ for name in settings[part]), *signature(load).parameters)


class UnknownLanguages(UsageError):
    """fairseq cannot tell the languages of a model."""


def _build_model(file: Path, state: dict[str, Any], replaced: dict[str, Any], task: Any) -> tuple[Any, Any, Any]:
    """The model, config and task of the checkpoint ``file``, whose content is ``state``.

    Args:
        replaced: settings to use in place of the recorded ones.
        task: the task of the ensemble's first model, or None for the first.

    Raises:
        UsageError: the data is missing, or the model cannot be built.
    """
    try:
        [model], cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(file)], replaced, task=task, state=state
        )
    except OSError as error:
        raise UsageError(
            f"{error.filename}: {error.strerror}; if the data has moved, or the training's path to it was relative"
            " to another folder, name the folder with its dictionaries with --data (in Python data=)"
        ) from error
    except UsageError:
        raise
    except Exception as error:  # any kind: another program may have written the settings
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        kind = UnknownLanguages if "infer language pair" in str(error) else UsageError
        raise kind(f"{file}: cannot be loaded ({reason}); was it saved by another program?") from error
    return model, cfg, task


def settings_by_part(file: Path, state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings in the checkpoint ``file``, by part. In old checkpoints each part has all flags of the training."""
    if state.get("args") is not None:
        return dict.fromkeys((*READ, "checkpoint"), vars(state["args"]))
    if not OmegaConf.is_dict(state.get("cfg")):
        raise UsageError(f"{file}: has no settings of its training; give a checkpoint that fairseq-train saved")
    parts: Any = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    flat = {name: vars(part) if isinstance(part, Namespace) else part or {} for name, part in parts.items()}
    return {name: part if isinstance(part := flat.get(name), dict) else {} for name in (*READ, "checkpoint")}


def _check_languages(
    file: Path,
    settings: dict[str, Any],
    overrides: dict[str, Any],
    first_languages: dict[str, str],
    data: PathLike | None,
) -> dict[str, str]:
    """The languages of the checkpoint ``file``, after a comparison with the languages that were asked for.

    Args:
        settings: settings of the checkpoint's task.
        data: the data folder, if it is not at the recorded path.

    Raises:
        UsageError: ``overrides``, or ``others`` of the same ensemble, have other languages.
    """
    requested = languages(overrides)
    trained, source = known_languages(file, settings, (data, settings.get("data")))
    advice = "leave them out, or give a checkpoint of this direction"
    if mismatch := language_mismatch(trained, requested):
        raise UsageError(f"{mismatch}, {source}; {advice}")
    if mismatch := language_mismatch(trained, first_languages):
        first = describe_languages(first_languages)
        raise UsageError(f"{file}: was trained {describe_languages(trained)}, and the ensemble's first {first}")
    if mismatch := untrained_pair(settings, requested):
        logger.warning(f"{mismatch}, as {file} says: such translations are often in another language")
    return {**first_languages, **trained}


def _check_dictionaries(file: Path, state: dict[str, Any], task: Any) -> None:
    """Raises UsageError if the dictionaries of ``task`` have other words than those of the training of ``file``."""
    recorded = recorded_fingerprints(state.get("extra_state"))
    if mismatch := dictionary_mismatch(recorded, dictionary_fingerprints(task)):
        data = getattr(getattr(task, "cfg", None) or task.args, "data", None)
        raise UsageError(
            f"{file}: {mismatch} of its training had other words than the data in {data}; name the folder with the"
            " dictionaries of its training with --data (in Python data=); the models of an ensemble need the same ones"
        )


def data_place(file: Path, settings: dict[str, dict[str, Any]], data: PathLike | None) -> PathLike | None:
    """The data folder of the checkpoint ``file``: ``data`` if given, None if the recorded path is right."""
    if data is not None:
        return binary_data(data)
    recorded, saved = settings["task"].get("data"), settings["checkpoint"].get("save_dir")
    return data_folder(file, str(recorded or ""), str(saved or ""))


def _apply_overrides(state: dict[str, Any], requested: dict[str, Any], data: PathLike | None) -> dict[str, Any]:
    """Put ``wanted`` options and the data folder into the settings of a checkpoint; returns all replaced options."""
    # Not needed any more: the tokenizer of validation by BLEU, and files of embeddings, which the model has.
    requested = {"eval_bleu": False, "encoder_embed_path": None, "decoder_embed_path": None, **requested}
    if data is not None:
        requested["data"] = os.fspath(data)
    if state.get("args") is not None:
        vars(state["args"]).update(requested)
    if state.get("cfg") is not None:
        overwrite_args_by_name(state["cfg"], requested)
    return requested


def _use_known_pieces(translator: TorchTranslator) -> None:
    """Restrict the SentencePiece model to pieces that the dictionary has.

    Raises:
        UsageError: the SentencePiece model belongs to another model, and its pieces would be unknown.
    """
    if not isinstance(translator.bpe, SentencepieceBPE):
        return
    words = translator.src_dict.symbols[translator.src_dict.nspecial :]
    if (share := known_share(translator.bpe.sp, words)) < LEAST_KNOWN:
        raise UsageError(
            f"the SentencePiece model has {round(share * len(words))} of the {len(words)} pieces of the dictionary, so"
            f" it belongs to another model; name the right one with pieces= (--pieces), or {NONE} for text that is in"
            " pieces"
        )
    translator.bpe.sp = restrict_to_words(translator.bpe.sp, translator.src_dict.indices)


def _read_subword_model(pieces: Path) -> Any:
    """fairseq's subword encoder for the file ``pieces``."""
    try:
        if pieces.suffix == ".model":
            return SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(pieces)))
        if _is_dictionary(pieces):
            raise UsageError(
                f"{pieces}: is a dictionary of fairseq, a word and its count in each line; name the codes that"
                " subword-nmt learned, or a SentencePiece model (*.model)"
            )
        return SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=str(pieces)))
    except UsageError:  # a ValueError
        raise
    except ImportError as error:
        raise UsageError(f"{pieces}: {error}") from error
    except (OSError, RuntimeError, ValueError, SystemExit) as error:  # subword-nmt exits
        raise UsageError(f"{pieces}: is not a subword model, or cannot be read") from error


def _is_dictionary(file: Path) -> bool:
    """Whether every line has a word and a number, which is rare among the pairs that subword-nmt merges."""
    lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    fields = [line.removesuffix(" #fairseq:overwrite").rpartition(" ") for line in lines]
    return all(word and count.isdecimal() for word, _, count in fields)
