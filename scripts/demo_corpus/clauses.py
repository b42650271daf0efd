"""Clauses, and their word orders in both languages."""

from dataclasses import dataclass

from .noun_phrases import Phrase
from .nouns import Case
from .pair import Pair
from .predicates import Predicate
from .verbs import Verb

NO_WORD = Pair("", "")


@dataclass(frozen=True)
class Complements:
    """The complements of a verb, in the order of a clause.

    English: ``en_objects``, the verb's particle, ``en_after``, time.
    German: ``de_persons`` (pronouns and datives), time, ``de_way`` (company, place), ``de_objects``, nicht,
    ``de_aim`` (with the verb's preposition). With ``kein`` the object is negated, without "nicht".
    """

    en_objects: str = ""
    en_after: str = ""
    de_persons: str = ""
    de_way: str = ""
    de_objects: str = ""
    de_aim: str = ""
    kein: bool = False


@dataclass(frozen=True)
class Clause:
    subject: Phrase
    predicate: Predicate
    complements: Complements = Complements()
    time: Pair | None = None
    negated: bool = False

    @property
    def de_subject(self) -> str:
        return self.subject.de[Case.NOMINATIVE]

    def english_rest(self, with_time: bool = True) -> str:
        rest = self.complements
        time = self.time.en if with_time and self.time else ""
        return _join(rest.en_objects, self.predicate.en_particle, rest.en_after, time)

    def german_middle(self, with_time: bool = True) -> str:
        """Everything between the finite verb (or a subordinate subject) and the closing words."""
        rest = self.complements
        time = self.time.de if with_time and self.time else ""
        nicht = "nicht" if self.negated and not rest.kein else ""
        return _join(rest.de_persons, time, rest.de_way, rest.de_objects, nicht, rest.de_aim)

    def english(self, with_time: bool = True) -> str:
        verb = self.predicate.english_statement(self.negated)
        return _join(self.subject.en_subject, verb, self.english_rest(with_time))

    def german_last(self) -> str:
        """The verb at the end, without the subject: the order of subordinate clauses."""
        return _join(self.german_middle(), self.predicate.german_last())

    def german_second(self, *before: str, between: str = "", with_time: bool = True) -> str:
        """The finite verb after ``before``: the order of main clauses."""
        closing = _join(self.predicate.de_prefix, self.predicate.de_closing)
        return _join(*before, self.predicate.de_finite, between, self.german_middle(with_time), closing)


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def statement(clause: Clause) -> Pair:
    return Pair(clause.english(), clause.german_second(clause.de_subject))


def with_time_first(clause: Clause) -> Pair:
    """The German subject is after the verb; ``clause.time`` must not be None."""
    if clause.time is None:
        raise ValueError("the clause has no time")
    return Pair(
        f"{clause.time.en} {clause.english(with_time=False)}",
        clause.german_second(clause.time.de, between=clause.de_subject, with_time=False),
    )


def after_subordinate(clause: Clause) -> Pair:
    """A main clause after a subordinate clause."""
    return Pair(clause.english(), clause.german_second(between=clause.de_subject))


def question(clause: Clause, word: Pair = NO_WORD) -> Pair:
    """A yes-no question, or one with a question word."""
    predicate = clause.predicate
    denied = "not" if clause.negated else ""
    english = (word.en, predicate.en_helper, clause.subject.en_subject, denied, predicate.en_base)
    return Pair(
        _join(*english, clause.english_rest()),
        clause.german_second(word.de, between=clause.de_subject),
    )


def subordinate(conjunction: Pair, clause: Clause) -> Pair:
    """The German verb is at the end."""
    return Pair(
        f"{conjunction.en} {clause.english()}",
        _join(conjunction.de, clause.de_subject, clause.german_last()),
    )


def relative_subject(pronoun: Pair, clause: Clause) -> Pair:
    """The pronoun is the clause's subject: "who lives here"."""
    verb = clause.predicate.english_statement(clause.negated)
    return Pair(
        _join(pronoun.en, verb, clause.english_rest()),
        _join(pronoun.de, clause.german_last()),
    )


def infinitive(verb: Verb, complements: Complements) -> Pair:
    """An infinitive clause: "to buy a book", "ein Buch zu kaufen"."""
    rest = complements
    return Pair(
        _join("to", verb.english_infinitive(), rest.en_objects, verb.en_particle, rest.en_after),
        _join(rest.de_persons, rest.de_way, rest.de_objects, rest.de_aim, verb.german_zu()),
    )
