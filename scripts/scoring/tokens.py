"""Tokens for the scores of older papers: Moses' tokenisation by sacremoses, and compounds split at hyphens."""

import re
from collections.abc import Sequence
from pathlib import Path

from fairseq_luna.commands.command_line import CommandError
from fairseq_luna.commands.text_files import ending

_HYPHEN = re.compile(r"(\S)-(\S)")
_SPLIT = "##AT##-##AT##"
# Moses' mark of a split hyphen.
_SPLIT_ALREADY = (_SPLIT, "@-@")

try:
    from sacremoses import MosesDetokenizer, MosesTokenizer
    from sacremoses.corpus import NonbreakingPrefixes
except ImportError:  # not needed for tokenised text
    MosesTokenizer = None


def tokenise(lines: Sequence[str], language: str) -> list[str]:
    """Raw text as tokens between spaces, with XML's special characters escaped, as by tokenizer.perl.

    Raises:
        CommandError: Moses has no rules for ``language``, or sacremoses is not installed.
    """
    _check(language)
    tokeniser = MosesTokenizer(language)
    return [tokeniser.tokenize(line, return_str=True) for line in lines]


def detokenise(lines: Sequence[str], language: str) -> list[str]:
    """Moses' tokens as text again, its escapes and its split hyphens included.

    Raises:
        CommandError: see :func:`tokenise`.
    """
    _check(language)
    detokeniser = MosesDetokenizer(language)
    return [detokeniser.detokenize(line.split()) for line in lines]


def split_compounds(line: str) -> str:
    """``rich-text format`` as ``rich ##AT##-##AT## text format``.

    tensor2tensor's get_ende_bleu.sh does this to both sides; more n-grams match, which raises BLEU. As there, only the
    first hyphen of ``a-b-c`` is split, and hyphens that Moses has split are unchanged. Its replacement of Unicode
    punctuation in the hypotheses is left out.
    """
    return " ".join(
        token if token in _SPLIT_ALREADY else _HYPHEN.sub(rf"\1 {_SPLIT} \2", token) for token in line.split()
    )


def language_of(reference: Path) -> str:
    """The ending of ``test.de`` or ``test.de.gz``.

    Raises:
        CommandError: Moses has no rules for that language.
    """
    language = ending(reference)
    if MosesTokenizer is not None and language not in _languages():
        raise CommandError(
            f"{reference}: Moses has no rules for '{language}'; give --language, such as en, or --tokenize none"
        )
    return language


def _check(language: str) -> None:
    if MosesTokenizer is None:
        raise CommandError("sacremoses is not installed: pip install sacremoses, or give --tokenize none")
    if language not in _languages():
        raise CommandError(f"--language {language}: Moses has no rules for it; those of 'en' are the general ones")


def _languages() -> set[str]:
    return set(NonbreakingPrefixes().available_langs.values())
