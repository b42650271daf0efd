"""Translate on a CPU with an exported model: onnxruntime, numpy and sentencepiece, without torch and fairseq.

    from fairseq_luna.deployed import Translator
    Translator("exported").translate(["Two dogs run."])

``fairseq-luna export`` makes such a folder. ``python -m fairseq_luna.deployed exported`` translates lines of text.
"""

from typing import TYPE_CHECKING, Any

from ..translation import Translation

if TYPE_CHECKING:
    from .exported_translator import Translator

__all__ = ["Translation", "Translator"]


def __getattr__(name: str) -> Any:
    """Import ``Translator`` at its first use, so that the command can report a missing onnxruntime in one line."""
    if name != "Translator":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from .exported_translator import Translator

    return Translator
