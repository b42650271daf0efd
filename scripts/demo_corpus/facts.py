"""The sentence patterns about numbers: prices, clock times, dates, ages and amounts."""

from random import Random

from . import lexicon, nouns, random_phrases, times
from .clauses import Clause, Complements, question, statement, with_time_first
from .noun_phrases import Person, Phrase, noun_phrase
from .nouns import Case
from .number_words import english, german
from .pair import Pair, sentence
from .predicates import active, being, passive
from .verbs import Tense

_CHEAP = nouns.READABLES + nouns.FOODS + nouns.GOODS
_DEAR = nouns.MACHINES + nouns.FURNITURE


def thing_and_price(rng: Random) -> tuple[Phrase, Pair]:
    """Small prices in digits, with the language's decimal sign; round ones in words."""
    if rng.random() < 0.6:
        euros, cents = rng.randint(1, 99), rng.choice((0, 20, 25, 45, 50, 75, 90, 95, 99))
        price = Pair(f"{euros}.{cents:02d} euros", f"{euros},{cents:02d} Euro")
        return random_phrases.definite_thing(rng, _CHEAP), price
    return random_phrases.definite_thing(rng, _DEAR), amount(rng.randint(2, 999), Pair("euros", "Euro"))


def amount(number: int, unit: Pair) -> Pair:
    return Pair(f"{english(number)} {unit.en}", f"{german(number)} {unit.de}")


def costs(rng: Random) -> Pair:
    thing, (en, de) = thing_and_price(rng)
    tense = Tense.FUTURE if rng.random() < 0.2 else Tense.PRESENT
    predicate = active(lexicon.COST, tense, thing.person)
    return sentence(*statement(Clause(thing, predicate, Complements(en_objects=en, de_objects=de))))


def how_much(rng: Random) -> Pair:
    thing = random_phrases.definite_thing(rng, nouns.THINGS + nouns.FURNITURE)
    predicate = active(lexicon.COST, Tense.PRESENT, thing.person)
    return sentence(*question(Clause(thing, predicate), Pair("how much", "wie viel")), "?")


def pays(rng: Random) -> Pair:
    who = random_phrases.subject(rng)
    thing, (en, de) = thing_and_price(rng)
    tense = rng.choice((Tense.PAST, Tense.PAST, Tense.FUTURE, Tense.MUST, Tense.WANT))
    complements = Complements(
        en_objects=f"{en} for {thing.en_object}",
        de_objects=f"{de} für {thing.de[Case.ACCUSATIVE]}",
    )
    return sentence(*statement(Clause(who, active(lexicon.PAY, tense, who.person), complements)))


def timetable(rng: Random) -> Pair:
    """Vehicles that leave or arrive."""
    vehicle, city = rng.choice(nouns.VEHICLES), rng.choice(lexicon.CITIES)
    leaves = rng.random() < 0.5
    verb, way = (lexicon.LEAVE, Pair("to", "nach")) if leaves else (lexicon.ARRIVE, Pair("from", "aus"))
    base = noun_phrase("the", vehicle)
    en = f"{base.en_subject} {way.en} {city.en}"
    de = {case: f"{text} {way.de} {city.de}" for case, text in base.de.items()}
    tense = rng.choice((Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.FUTURE))
    subject = Phrase(en, en, de, Person.SINGULAR)
    return sentence(*statement(Clause(subject, active(verb, tense, subject.person), time=times.at_clock(rng))))


def event(rng: Random) -> Pair:
    """An event that begins or ends; German has the day before the clock time, English after it."""
    what = random_phrases.definite_thing(rng, nouns.EVENTS, describe=0.0)
    clock = times.at_clock(rng)
    day = rng.choice((times.on_date, times.on_weekday))(rng)
    verb, tense = rng.choice((lexicon.BEGIN, lexicon.END)), rng.choice((Tense.PRESENT, Tense.PAST))
    predicate = active(verb, tense, what.person)
    if rng.random() < 0.4:
        complements = Complements(en_after=clock.en, de_way=clock.de)
        return sentence(*with_time_first(Clause(what, predicate, complements, time=day)))
    when = Pair(f"{clock.en} {day.en}", f"{day.de} {clock.de}")
    return sentence(*statement(Clause(what, predicate, time=when)))


def clock_now(rng: Random) -> Pair:
    en, de = times.random_clock(rng)
    return sentence(f"it is {en}", f"es ist {de}")


def today(rng: Random) -> Pair:
    month = rng.randrange(12)
    en, de = times.date(rng.randint(1, times.days_in(month)), month, "e")
    day = rng.choice((Pair("today is", "heute ist"), Pair("tomorrow is", "morgen ist")))
    return sentence(f"{day.en} {en}", f"{day.de} der {de}")


def born(rng: Random) -> Pair:
    who = random_phrases.subject(rng)
    en, de = times.on_date(rng)
    year = rng.randint(1950, 2010)
    clause = Clause(who, passive(lexicon.BEAR, True, who.person), time=Pair(f"{en} {year}", f"{de} {year}"))
    return sentence(*statement(clause))


def age(rng: Random) -> Pair:
    who = random_phrases.subject(rng)
    years = amount(rng.randint(2, 99), Pair("years old", "Jahre alt"))
    return sentence(*statement(Clause(who, being(years, rng.random() < 0.2, who.person))))


def there_are(rng: Random) -> Pair:
    """The place is last in English, first in German."""
    kinds = rng.choice((nouns.PERSONS, nouns.FURNITURE, nouns.READABLES))
    number = rng.randint(2, 999)
    things = noun_phrase("", rng.choice(kinds), plural=True, number=number)
    place = rng.choice(lexicon.WHERE)
    return sentence(
        f"there are {things.en_object} {place.en}",
        f"{place.de} gibt es {things.de[Case.ACCUSATIVE]}",
    )
