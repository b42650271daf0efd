"""Moses' punctuation normalisation and tokenisation, by sacremoses."""

from dataclasses import dataclass
from functools import lru_cache

import regex
from sacremoses import MosesPunctNormalizer, MosesTokenizer

# Control and format characters become spaces, as in Moses' remove-non-printing-char.perl.
_UNPRINTABLE = regex.compile(r"\p{C}")


@dataclass(frozen=True)
class Tokenise:
    """Lines of raw text to lines of tokens between spaces, with XML's special characters escaped.

    Args:
        language: such as ``en``; the rules of English for one that Moses does not know.
        lower: lower-case first.
        split_hyphens: write ``well-known`` as ``well @-@ known``.
    """

    language: str
    lower: bool = False
    split_hyphens: bool = False

    def __call__(self, lines: list[str]) -> list[str]:
        return [self.line(line) for line in lines]

    def line(self, line: str) -> str:
        normaliser, tokeniser = _tools(self.language)
        text = line.lower() if self.lower else line
        text = _UNPRINTABLE.sub(" ", normaliser.normalize(text))
        return tokeniser.tokenize(text, aggressive_dash_splits=self.split_hyphens, return_str=True)


@lru_cache
def _tools(language: str) -> tuple[MosesPunctNormalizer, MosesTokenizer]:
    return MosesPunctNormalizer(language, perl_parity=True), MosesTokenizer(language)
