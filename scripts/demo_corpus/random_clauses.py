"""Random clauses, with one function for each kind of complement."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from . import lexicon, nouns, random_phrases, times
from .clauses import Clause, Complements
from .noun_phrases import Phrase
from .nouns import Case
from .pair import Pair
from .predicates import active
from .verbs import Tense, Verb

Action = tuple[Verb, Complements]

PRESENT_TENSES = (Tense.PRESENT, Tense.PRESENT, Tense.CAN, Tense.MUST, Tense.WANT)
TOLD_TENSES = (Tense.PAST, Tense.PAST, Tense.PAST, Tense.COULD, Tense.HAD_TO, Tense.WANTED)
ALL_TENSES = (*PRESENT_TENSES, *TOLD_TENSES, Tense.FUTURE, Tense.FUTURE, Tense.SHOULD)


def random_clause(
    rng: Random,
    tenses: tuple[Tense, ...] = ALL_TENSES,
    *,
    subject: Phrase | None = None,
    deny: float = 0.12,
    timed: float = 0.0,
    adjunct: float = 0.0,
) -> Clause:
    """``deny``, ``timed`` and ``adjunct`` are the probabilities of a negation, a time, and a place or company."""
    subject = subject or random_phrases.subject(rng)
    tense = rng.choice(tenses)
    # English "must not" would be German "darf nicht".
    negated = rng.random() < deny and tense is not Tense.MUST
    verb, complements = random_action(rng, subject, negated)
    if not negated and rng.random() < adjunct:
        complements = _with_adjunct(rng, complements)
    predicate = active(verb, shown_tense(verb, tense), subject.person)
    time = random_time(rng, tense) if rng.random() < timed else None
    return Clause(subject, predicate, complements, time, negated)


def random_time(rng: Random, tense: Tense) -> Pair:
    if tense.told:
        return times.past(rng)
    return times.present(rng) if tense is Tense.PRESENT else times.future(rng)


def shown_tense(verb: Verb, tense: Tense) -> Tense:
    """Verbs such as "put" have the same form in the English past, and take another past tense."""
    return Tense.HAD_TO if tense is Tense.PAST and verb.en_past == verb.en else tense


def random_action(rng: Random, subject: Phrase, negated: bool = False) -> Action:
    """A verb with its complements; ``negated`` allows "kein"."""
    return rng.choices(_KINDS, weights=_WEIGHTS)[0](rng, subject, negated)


def _with_thing(rng: Random, subject: Phrase, negated: bool) -> Action:
    verb, kinds = rng.choice(lexicon.WITH_THING)
    return verb, _thing_object(rng, kinds, negated)


def _thing_object(rng: Random, kinds: tuple[nouns.Noun, ...], negated: bool) -> Complements:
    kein = negated and rng.random() < 0.6
    if kein:
        thing = random_phrases.denied_thing(rng, kinds)
    elif negated:
        thing = random_phrases.definite_thing(rng, kinds)
    else:
        thing = random_phrases.thing(rng, kinds)
    return Complements(en_objects=thing.en_object, de_objects=thing.de[Case.ACCUSATIVE], kein=kein)


def _with_person(rng: Random, subject: Phrase, negated: bool) -> Action:
    person = random_phrases.person_object(rng, subject, definite=negated)
    german = person.de[Case.ACCUSATIVE]
    if person.pronoun:
        complements = Complements(en_objects=person.en_object, de_persons=german)
    else:
        complements = Complements(en_objects=person.en_object, de_objects=german)
    return rng.choice(lexicon.WITH_PERSON), complements


def _with_dative(rng: Random, subject: Phrase, negated: bool) -> Action:
    person = random_phrases.person_object(rng, subject, definite=negated)
    return rng.choice(lexicon.WITH_DATIVE), Complements(person.en_object, de_persons=person.de[Case.DATIVE])


def _giving(rng: Random, subject: Phrase, negated: bool) -> Action:
    person = random_phrases.person_object(rng, subject, definite=negated)
    thing = _thing_object(rng, nouns.THINGS, negated)
    english = f"{person.en_object} {thing.en_objects}"
    return rng.choice(lexicon.GIVING), replace(thing, en_objects=english, de_persons=person.de[Case.DATIVE])


def _with_preposition(rng: Random, subject: Phrase, negated: bool) -> Action:
    verb, preposition, case = rng.choice(lexicon.WITH_PREPOSITION)
    if verb is lexicon.WAIT and rng.random() < 0.5:
        target = random_phrases.definite_thing(rng, nouns.VEHICLES)
    else:
        target = random_phrases.person_object(rng, subject, definite=negated)
    return verb, Complements(en_objects=target.en_object, de_aim=f"{preposition} {target.de[case]}")


def _without_object(rng: Random, subject: Phrase, negated: bool) -> Action:
    return rng.choice(lexicon.WITHOUT_OBJECT), Complements()


def _staying(rng: Random, subject: Phrase, negated: bool) -> Action:
    place = rng.choice(lexicon.WHERE)
    return rng.choice(lexicon.STAYING), Complements(en_after=place.en, de_aim=place.de)


def _going(rng: Random, subject: Phrase, negated: bool) -> Action:
    place = rng.choice(lexicon.WHERE_TO)
    return rng.choice(lexicon.GOING), Complements(en_after=place.en, de_aim=place.de)


def _travelling(rng: Random, subject: Phrase, negated: bool) -> Action:
    city, vehicle = rng.choice(lexicon.CITIES), rng.choice(lexicon.BY)
    return lexicon.TRAVEL, Complements(en_after=f"to {city.en} {vehicle.en}", de_aim=f"{vehicle.de} nach {city.de}")


def _putting(rng: Random, subject: Phrase, negated: bool) -> Action:
    thing = _thing_object(rng, nouns.STANDING, negated)
    where = place_at_furniture(rng, Case.ACCUSATIVE)
    return lexicon.PUT, replace(thing, en_after=where.en, de_aim=where.de)


def place_at_furniture(rng: Random, case: Case) -> Pair:
    """Dative for a place, accusative for a direction."""
    furniture = random_phrases.definite_thing(rng, nouns.FURNITURE)
    beside = rng.choice(lexicon.BESIDE)
    return Pair(f"{beside.en} {furniture.en_object}", f"{beside.de} {furniture.de[case]}")


def _with_adjunct(rng: Random, complements: Complements) -> Complements:
    """Add company, or a place if there is none."""
    if rng.random() < 0.5 or complements.en_after:
        company = random_phrases.person(rng)
        # "for" needs an object.
        preposition, case = rng.choice(lexicon.COMPANY if complements.de_objects else lexicon.COMPANY[:2])
        adjunct = Pair(f"{preposition.en} {company.en_object}", f"{preposition.de} {company.de[case]}")
    else:
        adjunct = rng.choice(lexicon.WHERE)
    after = f"{complements.en_after} {adjunct.en}".strip()
    return replace(complements, en_after=after, de_way=adjunct.de)


_WEIGHTED: tuple[tuple[Callable[[Random, Phrase, bool], Action], int], ...] = (
    (_with_thing, 34),
    (_with_person, 16),
    (_with_dative, 8),
    (_giving, 10),
    (_with_preposition, 9),
    (_without_object, 4),
    (_staying, 5),
    (_going, 6),
    (_travelling, 6),
    (_putting, 6),
)
_KINDS = [kind for kind, _ in _WEIGHTED]
_WEIGHTS = [weight for _, weight in _WEIGHTED]
