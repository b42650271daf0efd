"""Tokens for the scores of older papers: Moses' tokenisation by sacremoses, and compounds split at their hyphens."""

import re
from collections.abc import Sequence
from pathlib import Path

from shared.command import CommandError

_HYPHEN = re.compile(r"(\S)-(\S)")
_SPLIT = "##AT##-##AT##"
# Moses' own mark of a hyphen that has been split off.
_SPLIT_ALREADY = (_SPLIT, "@-@")

try:
    from sacremoses import MosesDetokenizer, MosesTokenizer
    from sacremoses.corpus import NonbreakingPrefixes
except ImportError:  # tokens can be scored as they stand without it
    MosesTokenizer = None


def tokenise(lines: Sequence[str], language: str) -> list[str]:
    """Raw text as tokens between spaces, with XML's special characters escaped, as tokenizer.perl has them.

    Raises:
        CommandError: Moses has no rules for ``language``, or sacremoses is not installed.
    """
    _check(language)
    tokeniser = MosesTokenizer(language)
    return [tokeniser.tokenize(line, return_str=True) for line in lines]


def detokenise(lines: Sequence[str], language: str) -> list[str]:
    """Moses' tokens as text again, its escapes and its split hyphens included.

    Raises:
        CommandError: as :func:`tokenise`.
    """
    _check(language)
    detokeniser = MosesDetokenizer(language)
    return [detokeniser.detokenize(line.split()) for line in lines]


def split_compounds(line: str) -> str:
    """``rich-text format`` as ``rich ##AT##-##AT## text format``.

    What get_ende_bleu.sh of tensor2tensor does to both sides, which makes more n-grams match and so raises BLEU. As
    there, of ``a-b-c`` only the first hyphen is split. Hyphens that are tokens of their own, marked as split, stay.
    Its replacing of Unicode punctuation on the side of the hypotheses is left out.
    """
    return " ".join(
        token if token in _SPLIT_ALREADY else _HYPHEN.sub(rf"\1 {_SPLIT} \2", token) for token in line.split()
    )


def language_of(reference: Path) -> str:
    """The ending of ``test.de`` or ``test.de.gz``.

    Raises:
        CommandError: it is no language that Moses has rules for.
    """
    ending = reference.with_suffix("").suffix if reference.suffix == ".gz" else reference.suffix
    language = ending.removeprefix(".")
    if MosesTokenizer is not None and language not in _languages():
        raise CommandError(f"{reference} does not end in a language, such as .de: give --language, or --tokenize none")
    return language


def _check(language: str) -> None:
    if MosesTokenizer is None:
        raise CommandError("sacremoses is not installed: pip install sacremoses, or give --tokenize none")
    if language not in _languages():
        raise CommandError(f"--language {language}: Moses has no rules for it; those of 'en' are the general ones")


def _languages() -> set[str]:
    return set(NonbreakingPrefixes().available_langs.values())
