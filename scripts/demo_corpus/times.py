"""Clock times, dates and other adverbials of time, grouped by tense."""

from random import Random

from .number_words import english, english_ordinal, german, german_ordinal
from .pair import Pair, pairs

WEEKDAYS = pairs(
    "Monday | Montag; Tuesday | Dienstag; Wednesday | Mittwoch; Thursday | Donnerstag; Friday | Freitag; "
    "Saturday | Samstag; Sunday | Sonntag"
)
MONTHS = pairs(
    "January | Januar; February | Februar; March | März; April | April; May | Mai; June | Juni; July | Juli; "
    "August | August; September | September; October | Oktober; November | November; December | Dezember"
)
_PARTS_OF_DAY = pairs("morning | Morgen; afternoon | Nachmittag; evening | Abend")
_HABITS = pairs(
    "every day | jeden Tag; every week | jede Woche; every year | jedes Jahr; today | heute; sometimes | manchmal"
)
_PAST = pairs(
    "yesterday | gestern; last week | letzte Woche; last month | letzten Monat; last year | letztes Jahr; "
    "yesterday evening | gestern Abend"
)
_FUTURE = pairs(
    "tomorrow | morgen; next week | nächste Woche; next month | nächsten Monat; next year | nächstes Jahr; "
    "tomorrow evening | morgen Abend; soon | bald"
)
# Units of time; the German ones in the dative plural, after "vor" and "in".
_UNITS = pairs("days | Tagen; weeks | Wochen; months | Monaten; years | Jahren")


def clock(hour: int, minute: int) -> Pair:
    """A time in words; ``1 <= hour <= 12``, ``minute`` a multiple of 5: half past three is "halb vier"."""
    following = hour % 12 + 1
    if minute == 0:
        return Pair(f"{english(hour)} o'clock", f"{'ein' if hour == 1 else german(hour)} Uhr")
    if minute == 30:
        return Pair(f"half past {english(hour)}", f"halb {german(following)}")
    past = minute < 30
    distance = minute if past else 60 - minute
    en = "a quarter" if distance == 15 else english(distance)
    de = "Viertel" if distance == 15 else german(distance)
    if past:
        return Pair(f"{en} past {english(hour)}", f"{de} nach {german(hour)}")
    return Pair(f"{en} to {english(following)}", f"{de} vor {german(following)}")


def clock_in_digits(hour: int, minute: int) -> Pair:
    """A time as in a timetable."""
    return Pair(f"{hour}:{minute:02d}", f"{hour}.{minute:02d} Uhr")


def date(day: int, month: int, ending: str) -> Pair:
    """``month`` from 0; the German ordinal has ``ending``, and no article."""
    en_month, de_month = MONTHS[month]
    return Pair(
        f"the {english_ordinal(day)} of {en_month}",
        f"{german_ordinal(day, ending)} {de_month}",
    )


def days_in(month: int) -> int:
    """February has 28 days, because no year is known."""
    return 28 if month == 1 else 30 if month in (3, 5, 8, 10) else 31


def random_clock(rng: Random) -> Pair:
    # Without 25 and 35 minutes past, which German counts from the half hour.
    return clock(rng.randint(1, 12), rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, 55)))


def at_clock(rng: Random) -> Pair:
    if rng.random() < 0.3:
        en, de = clock_in_digits(rng.randint(6, 23), rng.randint(0, 11) * 5)
    else:
        en, de = random_clock(rng)
    return Pair(f"at {en}", f"um {de}")


def on_date(rng: Random) -> Pair:
    month = rng.randrange(12)
    en, de = date(rng.randint(1, days_in(month)), month, "en")
    return Pair(f"on {en}", f"am {de}")


def on_weekday(rng: Random) -> Pair:
    en, de = rng.choice(WEEKDAYS)
    if rng.random() < 0.4:
        part = rng.choice(_PARTS_OF_DAY)
        return Pair(f"on {en} {part.en}", f"am {de}{part.de.lower()}")
    return Pair(f"on {en}", f"am {de}")


def _any_tense(rng: Random) -> Pair:
    draw = rng.random()
    if draw < 0.3:
        return at_clock(rng)
    if draw < 0.7:
        return on_weekday(rng)
    if draw < 0.9:
        return on_date(rng)
    part = rng.choice(_PARTS_OF_DAY)
    return Pair(f"in the {part.en}", f"am {part.de}")


def present(rng: Random) -> Pair:
    if rng.random() < 0.5:
        return _any_tense(rng)
    if rng.random() < 0.3:
        day = rng.choice(WEEKDAYS + _PARTS_OF_DAY)
        return Pair(f"every {day.en}", f"jeden {day.de}")
    return rng.choice(_HABITS)


def past(rng: Random) -> Pair:
    if rng.random() < 0.5:
        return _any_tense(rng)
    if rng.random() < 0.4:
        number, unit = rng.randint(2, 12), rng.choice(_UNITS)
        return Pair(f"{english(number)} {unit.en} ago", f"vor {german(number)} {unit.de}")
    if rng.random() < 0.2:
        year = rng.randint(1950, 2020)
        return Pair(f"in {year}", f"im Jahr {year}")
    return rng.choice(_PAST)


def future(rng: Random) -> Pair:
    if rng.random() < 0.5:
        return _any_tense(rng)
    if rng.random() < 0.4:
        number, unit = rng.randint(2, 12), rng.choice(_UNITS)
        return Pair(f"in {english(number)} {unit.en}", f"in {german(number)} {unit.de}")
    return rng.choice(_FUTURE)
