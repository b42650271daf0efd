"""Choice of sacreBLEU's tokenizer, which splits text into the words that BLEU counts: by language, or by letters.

13a, the default, splits at spaces and punctuation. In text without spaces it takes each clause for a word, so that a
good translation has hardly a word in common with its reference.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import langcodes
import regex

from ...usage_error import UsageError
from . import USUAL

CHINESE, JAPANESE, KOREAN, UNSPACED = "Chinese", "Japanese", "Korean", "a script without spaces between words"
# Of sacreBLEU; it has no others for single languages.
TOKENIZER_BY_WRITING = {CHINESE: "zh", JAPANESE: "ja-mecab", KOREAN: "ko-mecab"}
LANGUAGES = {CHINESE: "zh", JAPANESE: "ja", KOREAN: "ko"}
# By ISO 15924. Also Cantonese, for example, is written in Chinese characters.
SCRIPTS = {
    CHINESE: ("Hans", "Hant", "Hani", "Hanb", "Bopo"),
    JAPANESE: ("Jpan", "Hrkt", "Hira", "Kana"),
    KOREAN: ("Kore", "Hang", "Jamo"),
}
# lb is Unicode's Line_Break. SA is the writing of South-East Asia, where only a dictionary tells the end of a word; AK
# and AS are the writings of Java, Bali and others, where a line may end after each syllable. Tibetan marks syllables.
LETTERS = {
    None: r"\p{L}",
    CHINESE: r"[\p{Han}\p{Bopomofo}]",
    JAPANESE: r"[\p{Hiragana}\p{Katakana}]",
    KOREAN: r"\p{Hangul}",
    UNSPACED: r"[\p{L}&&[\p{lb=SA}\p{lb=AK}\p{lb=AS}\p{lb=ID}\p{Tibetan}]]",
}
PRIVATE_REGION = re.compile("AA|Q[M-Z]|X[A-JL-Z]|ZZ")  # by ISO 3166: no countries
# Endings of files that are codes of languages too, or may become one.
NO_LANGUAGES = {"gz", "txt", "text", "raw", "ref", "hyp", "out", "tok", "detok", "bpe", "sp", "spm"}
_PATTERNS = {writing: regex.compile(letters, regex.V1) for writing, letters in LETTERS.items()}
# Writings that these tokenizers split into words or smaller units. A Japanese line may have no kana.
_CUT = {"zh": {CHINESE}, "ja-mecab": {CHINESE, JAPANESE}, "ko-mecab": {KOREAN}}
_CUT |= {name: {CHINESE, JAPANESE, KOREAN, UNSPACED} for name in ("char", "flores101", "flores200")}
_OF_LINE = 0.25  # share of a line's letters: a word has one or two letters in Chinese, and six in Latin
_OF_TEXT = 0.05  # share of the lines


class TokenizerChoice(NamedTuple):
    """A tokenizer by sacreBLEU's name, why it was chosen, and a warning if it does not fit the text."""

    name: str
    reason: str
    doubt: str | None = None
    asian: bool = False  # whether the text is Chinese or Japanese, for TER, which has a tokenizer of its own
    ter_doubt: str | None = None  # a warning if TER does not fit the text


def choose_tokenizer(
    references: Mapping[Path, Sequence[str]], *, language: str | None = None, tokenizer: str | None = None
) -> TokenizerChoice:
    """Choose the tokenizer for ``references``, the lines of each file.

    It is ``tokenizer`` if that is given, else the tokenizer for the ``language``, for the language in the name of a
    file, or for the writing of most lines.

    Args:
        language: a code as in ISO 639, with or without script and region after ``-`` or ``_``.
        tokenizer: one of ``TOKENIZERS``.

    Raises:
        UsageError: ``language`` is not the code of a language.
    """
    lines = Counter(filter(None, (writing_of(line) for text in references.values() for line in text)))
    total = sum(map(len, references.values()))
    name, reason = _tokenizer_and_reason(references, lines, language, tokenizer)
    cut = _CUT.get(name, set()) | ({KOREAN} if tokenizer else set())  # which has spaces: another tokenizer is a choice
    uncut = {writing: count for writing, count in lines.items() if writing not in cut}
    asian = (
        name in (TOKENIZER_BY_WRITING[CHINESE], TOKENIZER_BY_WRITING[JAPANESE])
        or 2 * (lines[CHINESE] + lines[JAPANESE]) > total
    )
    doubt = ter_doubt = None
    files = ", ".join(map(str, references))
    if (share := sum(uncut.values()) / max(1, total)) >= _OF_TEXT:
        writing = max(uncut, key=uncut.__getitem__)
        advice = f"--language {LANGUAGES[writing]}" if writing in LANGUAGES else "--tokenize char or flores200"
        doubt = (
            f"{share:.0%} of the lines of {files} are in {writing}, which the tokenizer {name} does not split "
            f"into words: trust chrF2, not BLEU, or give {advice}"
        )
    elif not tokenizer and name in _CUT and not any(lines[writing] for writing in _CUT[name]):
        writing = next(writing for writing, tokenizer_name in TOKENIZER_BY_WRITING.items() if tokenizer_name == name)
        doubt = f"no line of {files} is in {writing} by its letters: is it the right reference, and the right language?"
    spaceless = lines[UNSPACED] + (0 if asian else lines[CHINESE] + lines[JAPANESE])
    if (share := spaceless / max(1, total)) >= _OF_TEXT:
        ter_doubt = f"TER counts words between spaces, which {share:.0%} of the lines of {files} do not have"
    return TokenizerChoice(name, reason, doubt, asian, ter_doubt)


def _tokenizer_and_reason(
    references: Mapping[Path, Sequence[str]], lines: Counter[str], language: str | None, tokenizer: str | None
) -> tuple[str, str]:
    if tokenizer:
        return tokenizer, f"--tokenize {tokenizer}"
    if language is not None:
        check_language(language)
        return TOKENIZER_BY_WRITING.get(writing_of_language(language) or "", USUAL), f"--language {language}"
    for file in references:
        if writing := writing_of_language(language_in_name(file) or ""):
            return TOKENIZER_BY_WRITING[writing], f"{file} is {writing} by its name; --language overrides it"
    if lines:
        [(writing, count)] = lines.most_common(1)
        if writing in TOKENIZER_BY_WRITING and 2 * count > sum(map(len, references.values())):
            return TOKENIZER_BY_WRITING[writing], f"most lines are {writing} by their letters; --language overrides it"
    return USUAL, "the default, for text with spaces between words; --language or --tokenize overrides it"


def language_in_name(file: Path) -> str | None:
    """The language code at the end of a file's name: zh of test.zh, test.zh.gz and test.zh.txt."""
    for suffix in reversed(file.suffixes):
        code = suffix.removeprefix(".")
        if code.lower() not in NO_LANGUAGES and langcodes.tag_is_valid(code):
            return code
    return None


def check_language(code: str) -> None:
    """Raises UsageError unless ``code`` is the code of a language."""
    if langcodes.tag_is_valid(code):
        return
    advice = "give a code such as de, zh_CN, jpn or zho_Hans"
    if suggestion := suggested_language(code):
        advice += f"; did you mean {suggestion}?"
    raise UsageError(f"--language {code}: is not a language code of ISO 639; {advice}")


def suggested_language(name: str) -> str | None:
    """The language code that is probably meant by ``name``, a locale, a code of a country or a name of a language."""
    locale = re.split(r"[.@]", name)[0]  # zh_CN.UTF-8, de_DE@euro
    if locale != name and langcodes.tag_is_valid(locale):
        return locale
    if len(name) == 2 and langcodes.tag_is_valid(f"und-{name}"):
        if PRIVATE_REGION.fullmatch(name.upper()):
            return None
        return f"{langcodes.get(f'und-{name}').maximize().language} ({name.upper()} is a country)"
    try:
        return str(langcodes.find(name))
    except (ImportError, LookupError):  # names of languages are in another distribution, language_data
        return None


def writing_of_language(code: str) -> str | None:
    """The key of ``SCRIPTS`` for the language ``code``; None for other languages, and for other text."""
    if not langcodes.tag_is_valid(code):
        return None
    script = langcodes.get(code).maximize().script
    return next((writing for writing, scripts in SCRIPTS.items() if script in scripts), None)


def writing_of(line: str) -> str | None:
    """The key of ``LETTERS`` for the letters of ``line``; None for text with spaces between words."""
    if line.isascii():
        return None
    count = {writing: len(pattern.findall(line)) for writing, pattern in _PATTERNS.items()}
    least = max(1, _OF_LINE * count[None])
    if count[CHINESE] + count[JAPANESE] >= least:
        return JAPANESE if 10 * count[JAPANESE] > count[CHINESE] else CHINESE
    return next((writing for writing in (KOREAN, UNSPACED) if count[writing] >= least), None)
