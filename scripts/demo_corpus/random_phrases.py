"""Random noun phrases for clauses."""

from collections.abc import Sequence
from random import Random

from . import nouns
from .noun_phrases import (
    COLOURS,
    FOR_PERSONS,
    FOR_THINGS,
    NAMES,
    POSSESSIVES,
    PRONOUNS,
    Adjective,
    Person,
    Phrase,
    noun_phrase,
)
from .nouns import Noun

# "We called us" is ambiguous in English, so first persons are never subject and object of one clause.
_FIRST_PERSONS = (Person.I, Person.WE)


def subject(rng: Random) -> Phrase:
    draw = rng.random()
    if draw < 0.35:
        return rng.choice(PRONOUNS)
    if draw < 0.45:
        return rng.choice(NAMES)
    return person(rng)


def person(rng: Random, definite: bool = False) -> Phrase:
    noun = rng.choice(nouns.PERSONS)
    return _definite(rng, noun, FOR_PERSONS, 0.2) if definite else _described(rng, noun, FOR_PERSONS, 0.2)


def person_object(rng: Random, of: Phrase, definite: bool) -> Phrase:
    """A person other than the subject ``of``; ``definite`` if the verb is negated with "nicht"."""
    if rng.random() < 0.35:
        return rng.choice([pronoun for pronoun in PRONOUNS if _can_meet(of, pronoun)])
    if rng.random() < 0.1:
        return rng.choice([name for name in NAMES if name != of])
    return person(rng, definite)


def thing(rng: Random, kinds: Sequence[Noun]) -> Phrase:
    return _described(rng, rng.choice(kinds), adjectives_for(rng), 0.3)


def adjectives_for(rng: Random) -> tuple[Adjective, ...]:
    return COLOURS if rng.random() < 0.3 else FOR_THINGS


def denied_thing(rng: Random, kinds: Sequence[Noun]) -> Phrase:
    """The object of a negated verb: "not ... a book" is "kein Buch"."""
    noun, plural = rng.choice(kinds), rng.random() < 0.2
    adjective = rng.choice(FOR_THINGS) if rng.random() < 0.3 else None
    english = noun_phrase("" if plural else "a", noun, adjective=adjective, plural=plural)
    german = noun_phrase("no", noun, adjective=adjective, plural=plural)
    return Phrase(english.en_subject, english.en_object, german.de, german.person, definite=False)


def definite_thing(rng: Random, kinds: Sequence[Noun], describe: float = 0.3) -> Phrase:
    return _definite(rng, rng.choice(kinds), adjectives_for(rng), describe)


def _definite(rng: Random, noun: Noun, adjectives: Sequence[Adjective], describe: float) -> Phrase:
    adjective = rng.choice(adjectives) if rng.random() < describe else None
    draw = rng.random()
    determiner = "the" if draw < 0.7 else "this" if draw < 0.78 else rng.choice(POSSESSIVES)
    return noun_phrase(determiner, noun, adjective=adjective, plural=rng.random() < 0.15)


def _described(rng: Random, noun: Noun, adjectives: Sequence[Adjective], describe: float) -> Phrase:
    draw = rng.random()
    if draw > 0.35:
        return _definite(rng, noun, adjectives, describe)
    adjective = rng.choice(adjectives) if rng.random() < describe else None
    if draw < 0.1:
        return noun_phrase("", noun, adjective=adjective, plural=True, number=rng.randint(2, 12))
    return noun_phrase("a", noun, adjective=adjective)


def _can_meet(subject: Phrase, object_: Phrase) -> bool:
    both_first = subject.person in _FIRST_PERSONS and object_.person in _FIRST_PERSONS
    return subject != object_ and not both_first
