"""Noun phrases of articles, adjectives and nouns, and the personal pronouns."""

from dataclasses import dataclass
from enum import Enum

from .nouns import Case, Gender, Noun
from .number_words import english, german


class Person(Enum):
    """The person of a finite verb; without the second person plural, which is ambiguous in English."""

    I = "ich"  # noqa: E741
    YOU = "du"
    SINGULAR = "er"
    WE = "wir"
    PLURAL = "sie"


@dataclass(frozen=True)
class Phrase:
    """A noun phrase, pronoun or name; only a ``definite`` one can be negated by "nicht"."""

    en_subject: str
    en_object: str
    de: dict[Case, str]
    person: Person
    pronoun: bool = False
    definite: bool = True


@dataclass(frozen=True)
class Adjective:
    """``stem`` differs from ``de`` if an ending removes a vowel: teuer, teure."""

    en: str
    de: str
    stem: str
    en_more: str
    de_more: str


def _adjectives(rows: str) -> tuple[Adjective, ...]:
    """Read "english comparative | german comparative stem; ..."; the stem is given only if it differs."""
    adjectives = []
    for row in rows.split("; "):
        en_side, de_side = row.split("|")
        en, en_more = en_side.strip().split(" ", 1)
        de, de_more, *stem = de_side.split()
        adjectives.append(Adjective(en, de, stem[0] if stem else de, en_more, de_more))
    return tuple(adjectives)


FOR_THINGS = _adjectives(
    "new newer | neu neuer; old older | alt älter; small smaller | klein kleiner; big bigger | groß größer; "
    "expensive more expensive | teuer teurer teur; cheap cheaper | billig billiger"
)
COLOURS = _adjectives("red redder | rot röter; green greener | grün grüner; black blacker | schwarz schwärzer")
FOR_PERSONS = _adjectives(
    "old older | alt älter; young younger | jung jünger; friendly friendlier | freundlich freundlicher; "
    "tall taller | groß größer; clever cleverer | klug klüger; sad sadder | traurig trauriger"
)

# The definite article, and the endings of words that are declined like it (dieser).
_DER = {
    Gender.MASCULINE: {Case.NOMINATIVE: "der", Case.ACCUSATIVE: "den", Case.DATIVE: "dem"},
    Gender.FEMININE: {Case.NOMINATIVE: "die", Case.ACCUSATIVE: "die", Case.DATIVE: "der"},
    Gender.NEUTER: {Case.NOMINATIVE: "das", Case.ACCUSATIVE: "das", Case.DATIVE: "dem"},
}
_DER_PLURAL = {Case.NOMINATIVE: "die", Case.ACCUSATIVE: "die", Case.DATIVE: "den"}
_STRONG = {"der": "er", "die": "e", "das": "es", "den": "en", "dem": "em"}

_OWNERS = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
EIN_WORDS = {"a": "ein", "no": "kein", **_OWNERS}
POSSESSIVES = tuple(_OWNERS)


def der(gender: Gender, case: Case, plural: bool) -> str:
    """The definite article, which is also the relative pronoun except in the dative plural."""
    return _DER_PLURAL[case] if plural else _DER[gender][case]


def noun_phrase(
    determiner: str, noun: Noun, *, adjective: Adjective | None = None, plural: bool = False, number: int = 0
) -> Phrase:
    """``determiner``: the, this, a, no, a possessive, or "" for a bare plural or a ``number``."""
    en = _english(determiner, noun, adjective, plural, number)
    de = {case: _german(determiner, noun, adjective, plural, number, case) for case in Case}
    person = Person.PLURAL if plural else Person.SINGULAR
    return Phrase(en, en, de, person, definite=determiner not in ("", "a", "no"))


def _english(determiner: str, noun: Noun, adjective: Adjective | None, plural: bool, number: int) -> str:
    words = [adjective.en] if adjective else []
    words.append(noun.english(plural))
    if number:
        words.insert(0, english(number))
    if determiner == "a":
        determiner = "an" if words[0][0] in "aeiou" else "a"
    elif determiner == "this" and plural:
        determiner = "these"
    return " ".join([determiner, *words] if determiner else words)


def _german(determiner: str, noun: Noun, adjective: Adjective | None, plural: bool, number: int, case: Case) -> str:
    article = der(noun.gender, case, plural)
    words = []
    if determiner == "the":
        words.append(article)
    elif determiner == "this":
        words.append("dies" + _STRONG[article])
    elif determiner:
        words.append(EIN_WORDS[determiner] + _ein_ending(noun.gender, case, plural))
    if number:
        words.append(german(number))
    if adjective:
        words.append(adjective.stem + _adjective_ending(determiner, noun.gender, case, plural))
    words.append(noun.german(case, plural))
    return " ".join(words)


def _ein_ending(gender: Gender, case: Case, plural: bool) -> str:
    """The ending of ein, kein and possessives: that of der, but none in the masculine and neuter nominative."""
    bare = case is Case.NOMINATIVE or (case is Case.ACCUSATIVE and gender is Gender.NEUTER)
    if bare and not plural and gender is not Gender.FEMININE:
        return ""
    return _STRONG[der(gender, case, plural)]


def _adjective_ending(determiner: str, gender: Gender, case: Case, plural: bool) -> str:
    """Strong if no determiner shows the case, weak otherwise."""
    strong = _STRONG[der(gender, case, plural)]
    shown = determiner in ("the", "this") or (determiner != "" and _ein_ending(gender, case, plural) != "")
    if not shown:
        return strong
    weak_e = not plural and case is not Case.DATIVE and strong != "en"
    return "e" if weak_e else "en"


def _pronoun(subject: str, object_: str, de: str, person: Person) -> Phrase:
    return Phrase(subject, object_, dict(zip(Case, de.split(), strict=True)), person, pronoun=True)


PRONOUNS = (
    _pronoun("I", "me", "ich mich mir", Person.I),
    _pronoun("you", "you", "du dich dir", Person.YOU),
    _pronoun("he", "him", "er ihn ihm", Person.SINGULAR),
    _pronoun("she", "her", "sie sie ihr", Person.SINGULAR),
    _pronoun("we", "us", "wir uns uns", Person.WE),
    _pronoun("they", "them", "sie sie ihnen", Person.PLURAL),
)
NAMES = tuple(
    Phrase(name, name, dict.fromkeys(Case, name), Person.SINGULAR) for name in ("Anna", "Peter", "Maria", "Thomas")
)
