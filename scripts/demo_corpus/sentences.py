"""The sentence patterns about people and actions, each a function of a random generator."""

from random import Random

from . import lexicon, nouns, random_phrases
from .clauses import (
    Clause,
    Complements,
    after_subordinate,
    infinitive,
    question,
    relative_subject,
    statement,
    subordinate,
    with_time_first,
)
from .noun_phrases import FOR_PERSONS, Adjective, der, noun_phrase
from .nouns import Case
from .pair import Pair, sentence
from .predicates import active, being, passive
from .random_clauses import (
    PRESENT_TENSES,
    TOLD_TENSES,
    place_at_furniture,
    random_action,
    random_clause,
    random_time,
)
from .verbs import Tense

_QUESTION_WORDS = (Pair("when", "wann"), Pair("why", "warum"), Pair("where", "wo"))
_REASONS = (Pair("because", "weil"), Pair("although", "obwohl"))
_MOMENTS = (Pair("before", "bevor"), Pair("while", "während"))
# "if" is present and "when" past, so that each has one German word.
_IF = Pair("if", "wenn")
_WHEN = Pair("when", "als")
_WHETHER = Pair("whether", "ob")
_THAT = Pair("that", "dass")


def plain(rng: Random) -> Pair:
    return sentence(*statement(random_clause(rng, timed=0.6, adjunct=0.3)))


def time_first(rng: Random) -> Pair:
    return sentence(*with_time_first(random_clause(rng, timed=1.0, adjunct=0.25)))


def asked(rng: Random) -> Pair:
    if rng.random() < 0.5:
        return sentence(*question(random_clause(rng, deny=0.0, timed=0.5, adjunct=0.2)), "?")
    return sentence(*question(random_clause(rng, deny=0.0), rng.choice(_QUESTION_WORDS)), "?")


def _two_clauses(rng: Random) -> tuple[Clause, Pair]:
    """A main clause and a subordinate clause of the same tense."""
    told = rng.random() < 0.5
    tenses = TOLD_TENSES if told else PRESENT_TENSES
    conjunction = rng.choice((*_REASONS, *_MOMENTS, _WHEN if told else _IF))
    main = random_clause(rng, tenses, adjunct=0.1)
    if conjunction in _MOMENTS:
        happening = (Tense.PAST if told else Tense.PRESENT,)
        other = random_clause(rng, happening, deny=0.0, timed=0.25, adjunct=0.05)
    else:
        other = random_clause(rng, tenses, timed=0.25, adjunct=0.05)
    return main, subordinate(conjunction, other)


def main_then_subordinate(rng: Random) -> Pair:
    main, other = _two_clauses(rng)
    en, de = statement(main)
    return sentence(f"{en} {other.en}", f"{de}, {other.de}")


def subordinate_then_main(rng: Random) -> Pair:
    main, other = _two_clauses(rng)
    en, de = after_subordinate(main)
    return sentence(f"{other.en}, {en}", f"{other.de}, {de}")


def reported(rng: Random) -> Pair:
    """Knowing that, asking whether."""
    who = random_phrases.subject(rng)
    told = rng.random() < 0.4
    tense, tenses = (Tense.PAST, TOLD_TENSES) if told else (Tense.PRESENT, (*PRESENT_TENSES, *TOLD_TENSES))
    asks = rng.random() < 0.35
    verb = lexicon.ASK if asks else rng.choice(lexicon.WITH_THAT)
    en, de = statement(Clause(who, active(verb, tense, who.person)))
    what = subordinate(_WHETHER if asks else _THAT, random_clause(rng, tenses, timed=0.4, adjunct=0.1))
    return sentence(f"{en} {what.en}", f"{de}, {what.de}")


def with_infinitive(rng: Random) -> Pair:
    """Trying to do something, or going somewhere in order to do it."""
    who = random_phrases.subject(rng)
    tense = rng.choice((Tense.PRESENT, Tense.PAST))
    action = infinitive(*random_action(rng, who))
    if rng.random() < 0.6:
        clause = Clause(who, active(rng.choice(lexicon.WITH_ZU), tense, who.person))
        purpose = Pair("", "")
    else:
        place = rng.choice(lexicon.WHERE_TO)
        predicate = active(rng.choice(lexicon.GOING), tense, who.person)
        clause = Clause(who, predicate, Complements(en_after=place.en, de_aim=place.de))
        purpose = Pair("in order ", "um ")
    en, de = statement(clause)
    return sentence(f"{en} {purpose.en}{action.en}", f"{de}, {purpose.de}{action.de}")


def described_by_clause(rng: Random) -> Pair:
    """A relative clause about the subject or the object of the sentence."""
    noun, plural = rng.choice(nouns.PERSONS), rng.random() < 0.25
    head = noun_phrase("the", noun, plural=plural)
    tenses = rng.choice(((Tense.PRESENT,), (Tense.PAST,), (Tense.CAN, Tense.WANT)))
    inner = random_clause(rng, tenses, subject=head, deny=0.05, timed=0.3)
    pronoun = Pair("who", der(noun.gender, Case.NOMINATIVE, plural))
    description = relative_subject(pronoun, inner)
    if rng.random() < 0.5:
        quality = being(_quality(rng), rng.random() < 0.3, head.person)
        rest = Pair(f"{quality.en_helper} {quality.en_base}", f"{quality.de_finite} {quality.de_closing}")
        return sentence(
            f"{head.en_subject} {description.en} {rest.en}",
            f"{head.de[Case.NOMINATIVE]}, {description.de}, {rest.de}",
        )
    who = random_phrases.subject(rng)
    knows = active(rng.choice(lexicon.KNOW_PERSON), Tense.PRESENT, who.person)
    known = Complements(en_objects=head.en_object, de_objects=head.de[Case.ACCUSATIVE])
    en, de = statement(Clause(who, knows, known))
    return sentence(f"{en} {description.en}", f"{de}, {description.de}")


def _quality(rng: Random) -> Pair:
    adjective: Adjective = rng.choice(FOR_PERSONS)
    return Pair(adjective.en, adjective.de)


def done_to(rng: Random) -> Pair:
    """The passive: "wird verkauft", "wurde verkauft"."""
    verb, kinds = rng.choice(lexicon.WITH_THING)
    thing = random_phrases.thing(rng, kinds)
    told = rng.random() < 0.6
    tense = Tense.PAST if told else Tense.PRESENT
    clause = Clause(
        thing,
        passive(verb, told, thing.person),
        time=random_time(rng, tense),
        negated=rng.random() < 0.1 and thing.definite,
    )
    return sentence(*(with_time_first if rng.random() < 0.3 else statement)(clause))


def state(rng: Random) -> Pair:
    """Being tall, being somewhere, standing on a table."""
    told = rng.random() < 0.4
    draw = rng.random()
    if draw < 0.4:
        who, what = random_phrases.subject(rng), _quality(rng)
    elif draw < 0.6:
        who, what = random_phrases.subject(rng), rng.choice(lexicon.WHERE)
    else:
        who, what = random_phrases.definite_thing(rng, nouns.STANDING), place_at_furniture(rng, Case.DATIVE)
    clause = Clause(who, being(what, told, who.person), negated=rng.random() < 0.2 and who.definite)
    if rng.random() < 0.25:
        return sentence(*question(clause), "?")
    return sentence(*statement(clause))


def compared(rng: Random) -> Pair:
    """The red car is cheaper than my bicycle."""
    if rng.random() < 0.5:
        first, second = (random_phrases.person(rng, definite=True) for _ in range(2))
        adjective = rng.choice(FOR_PERSONS)
    else:
        first, second = (random_phrases.definite_thing(rng, nouns.GOODS + nouns.MACHINES) for _ in range(2))
        adjective = rng.choice(random_phrases.FOR_THINGS)
    what = Pair(
        f"{adjective.en_more} than {second.en_object}",
        f"{adjective.de_more} als {second.de[Case.NOMINATIVE]}",
    )
    return sentence(*statement(Clause(first, being(what, rng.random() < 0.2, first.person))))


def opposed(rng: Random) -> Pair:
    """Two main clauses with "but"."""
    tenses = TOLD_TENSES if rng.random() < 0.5 else PRESENT_TENSES
    first, second = (statement(random_clause(rng, tenses, deny=0.3)) for _ in range(2))
    return sentence(f"{first.en}, but {second.en}", f"{first.de}, aber {second.de}")
