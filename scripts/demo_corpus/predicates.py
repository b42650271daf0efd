"""The verb group of a clause in both languages."""

from dataclasses import dataclass

from .noun_phrases import Person
from .pair import Pair
from .verbs import SEIN, WAR, WERDEN, WITH_INFINITIVE, WURDE, Tense, Verb, third_person

# Verbs without "do" in English.
_EN_MODALS = {
    Tense.FUTURE: "will",
    Tense.CAN: "can",
    Tense.MUST: "must",
    Tense.SHOULD: "should",
    Tense.COULD: "could",
}


@dataclass(frozen=True)
class Predicate:
    """English: the plain form, or helper and base in questions and negations. German: a finite verb and closing words.

    A helper without a plain form (will, can, is) is in every clause.
    """

    en_plain: str
    en_helper: str
    en_base: str
    de_finite: str
    de_prefix: str = ""
    de_closing: str = ""
    en_particle: str = ""

    def english_statement(self, negated: bool) -> str:
        if negated:
            separator = "" if self.en_helper == "can" else " "
            return f"{self.en_helper}{separator}not {self.en_base}"
        return self.en_plain or f"{self.en_helper} {self.en_base}"

    def german_last(self) -> str:
        """The end of a subordinate clause: anruft, angerufen hat, anrufen will."""
        return f"{self.de_closing} {self.de_prefix}{self.de_finite}".strip()


def active(verb: Verb, tense: Tense, person: Person) -> Predicate:
    base, particle = verb.english_infinitive(), verb.en_particle
    if tense is Tense.PRESENT:
        third = person is Person.SINGULAR
        plain = f"{third_person(verb.en) if third else verb.en} {verb.en_rest}".strip()
        finite = verb.german_present(person)
        return Predicate(plain, "does" if third else "do", base, finite, verb.prefix, "", particle)
    if tense is Tense.PAST:
        plain, finite = f"{verb.en_past} {verb.en_rest}".strip(), verb.perfect[person]
        return Predicate(plain, "did", base, finite, "", verb.german_participle(), particle)
    plain, helper, base = _english_with_infinitive(base, tense, person)
    finite = WITH_INFINITIVE[tense][person]
    return Predicate(plain, helper, base, finite, "", verb.german_infinitive(), particle)


def _english_with_infinitive(base: str, tense: Tense, person: Person) -> tuple[str, str, str]:
    """Plain form, helper and base."""
    third = person is Person.SINGULAR
    if tense is Tense.WANT:
        return f"{'wants' if third else 'want'} to {base}", "does" if third else "do", f"want to {base}"
    if tense is Tense.WANTED:
        return f"wanted to {base}", "did", f"want to {base}"
    if tense is Tense.HAD_TO:
        return f"had to {base}", "did", f"have to {base}"
    return "", _EN_MODALS[tense], base


def passive(verb: Verb, told: bool, person: Person) -> Predicate:
    finite = (WURDE if told else WERDEN)[person]
    base = f"{verb.en_participle} {verb.en_rest}".strip()
    return Predicate("", _be(told, person), base, finite, "", verb.german_participle(), verb.en_particle)


def being(what: Pair, told: bool, person: Person) -> Predicate:
    """An adjective or a place with "to be"; it is at the end of the German clause, like a participle."""
    return Predicate("", _be(told, person), what.en, (WAR if told else SEIN)[person], "", what.de)


def _be(told: bool, person: Person) -> str:
    alone = person in (Person.I, Person.SINGULAR)
    if told:
        return "was" if alone else "were"
    return {Person.I: "am", Person.SINGULAR: "is"}.get(person, "are")
