"""Export of a trained model to a folder of ONNX graphs that share one file of weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import environment
from ..files import make_unless_present, remove
from ..model_files import PathLike
from ..progress import show_elapsed_time
from ..usage_error import UsageError

if TYPE_CHECKING:
    from ..models.shared.translator import TorchTranslator

# Largest differences of log-probabilities in fp32 that are accepted: of all tokens, and of all but a hundredth.
NEAR, CLOSE = 1e-3, 1e-4
TRANSLATE = "use fairseq-luna translate"
ANOTHER_FORM = f"an attention may switch to another algorithm above some length; {TRANSLATE}"


def export_model(
    model: PathLike,
    output: Path,
    *,
    data: PathLike | None,
    pieces: PathLike | None,
    languages: Mapping[str, str | None],
    int8: bool = False,
) -> None:
    """Export the checkpoint at ``model`` to the new folder ``output``, and compare its numbers with the model's.

    Args:
        model, data, pieces: see :func:`fairseq_luna.load`.
        output: folder that does not exist; it is complete if it exists afterwards.
        languages: ``source_lang`` and ``target_lang``, if the checkpoint does not say.
        int8: store the weights of matrix products as bytes.

    Raises:
        UsageError: the model cannot be loaded or exported, or the numbers of its graphs are not the model's.
    """
    environment.require_fairseq()
    try:
        from . import comparison, exported_folder, onnx_graphs  # noqa: F401 (they need the packages for export)
    except ImportError as error:
        raise UsageError(f"{error}; pip install onnx onnxscript onnxruntime") from error
    from ..loading import load_translator

    direction: dict[str, Any] = {name: value for name, value in languages.items() if value}
    translator = load_translator(model, data=data, pieces=pieces, **direction)

    def write_checked_folder(folder: Path) -> None:
        # fp32 also before int8, whose rounding would hide that a graph is wrong.
        for rounded in (False, True) if int8 else (False,):
            remove(folder)
            folder.mkdir()
            _write_graphs(translator, folder, model, int8=rounded)
            _check_graphs(translator, folder, model, int8=rounded)

    make_unless_present("export", output, write_checked_folder)


def _write_graphs(translator: "TorchTranslator", folder: Path, model: PathLike, *, int8: bool) -> None:
    """Fill ``folder``. Raises UsageError if the ``model`` cannot be written as ONNX."""
    from .exported_folder import write_folder
    from .onnx_graphs import CANNOT

    try:
        write_folder(translator, folder, int8=int8)
    except UsageError:
        raise
    except CANNOT as error:
        reason = type(error).__name__
        raise UsageError(f"{model}: its attentions cannot be written as ONNX ({reason}); {TRANSLATE}") from error


def _check_graphs(translator: "TorchTranslator", folder: Path, model: PathLike, *, int8: bool) -> None:
    """Compare the graphs in ``folder`` with the model. Raises UsageError if their numbers are not the model's."""
    from .comparison import log_probability_differences

    try:
        with show_elapsed_time("comparing its numbers with the model's"):
            worst, usual = log_probability_differences(translator, folder)
    except RuntimeError as error:  # onnxruntime's; it has no class for that
        raise UsageError(f"{model}: a graph cannot be run; {ANOTHER_FORM}") from error
    kind = "int8" if int8 else "fp32"
    print(f"{kind}: log-probabilities of the graphs and of the model differ by {worst:.1e} at most", flush=True)
    if not (int8 or (worst <= NEAR and usual <= CLOSE)):
        raise UsageError(f"{model}: this difference is too large; {ANOTHER_FORM}")
