"""fairseq's joining of SentencePiece's pieces, with the characters that "fairseq-luna prepare" replaced in them.

SentencePiece would restore them by the rules in the model. fairseq joins pieces itself (--bpe, --remove-bpe).
"""

from collections.abc import Callable
from typing import Any

from fairseq.data import data_utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

from ..monkeypatch import wrap_method
from ..subwords import escapes_characters, restore_characters


def restore() -> None:
    """Let fairseq restore them; call once per process."""
    wrap_method(SentencepieceBPE, "decode")(_decode)
    wrap_method(data_utils, "post_process")(_post_process)


def _decode(decode: Callable[..., str], self: Any, pieces: str) -> str:
    text = decode(self, pieces)
    return restore_characters(text) if escapes_characters(self.sp) else text


def _post_process(post_process: Callable[..., str], sentence: str, symbol: str) -> str:
    text = post_process(sentence, symbol)
    return restore_characters(text) if symbol == "sentencepiece" else text
