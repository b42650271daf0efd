"""Number words, clock times, dates, and the declension and conjugation tables, by known values."""

import pytest

from demo_corpus import lexicon, nouns, number_words, times
from demo_corpus.noun_phrases import FOR_THINGS, Person, noun_phrase
from demo_corpus.nouns import Case
from demo_corpus.verbs import verb


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (345, "three hundred and forty-five", "dreihundertfünfundvierzig"),
        (912, "nine hundred and twelve", "neunhundertzwölf"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    ],
)
def test_cardinals(number: int, english: str, german: str) -> None:
    assert number_words.english(number) == english
    assert number_words.german(number) == german


def test_number_words_are_distinct() -> None:
    for words in (number_words.english, number_words.german):
        assert len({words(number) for number in range(1000)}) == 1000


def test_a_number_without_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="1000"):
        number_words.german(1000)


@pytest.mark.parametrize(
    ("day", "english", "german"),
    [
        (1, "first", "ersten"),
        (3, "third", "dritten"),
        (7, "seventh", "siebten"),
        (8, "eighth", "achten"),
        (12, "twelfth", "zwölften"),
        (19, "nineteenth", "neunzehnten"),
        (20, "twentieth", "zwanzigsten"),
        (31, "thirty-first", "einunddreißigsten"),
    ],
)
def test_ordinals(day: int, english: str, german: str) -> None:
    assert number_words.english_ordinal(day) == english
    assert number_words.german_ordinal(day, "en") == german


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (3, 15, "a quarter past three", "Viertel nach drei"),
        (3, 30, "half past three", "halb vier"),
        (12, 30, "half past twelve", "halb eins"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
        (4, 40, "twenty to five", "zwanzig vor fünf"),
        (10, 10, "ten past ten", "zehn nach zehn"),
    ],
)
def test_clock_times(hour: int, minute: int, english: str, german: str) -> None:
    assert times.clock(hour, minute) == (english, german)


def test_a_date() -> None:
    assert times.date(3, 4, "en") == ("the third of May", "dritten Mai")


@pytest.mark.parametrize(
    ("determiner", "kinds", "name", "plural", "forms"),
    [
        ("the", nouns.READABLES, "letter", False, "der neue Brief/den neuen Brief/dem neuen Brief"),
        ("a", nouns.READABLES, "letter", False, "ein neuer Brief/einen neuen Brief/einem neuen Brief"),
        ("a", nouns.READABLES, "book", False, "ein neues Buch/ein neues Buch/einem neuen Buch"),
        (
            "my",
            nouns.READABLES,
            "newspaper",
            False,
            "meine neue Zeitung/meine neue Zeitung/meiner neuen Zeitung",
        ),
        ("this", nouns.READABLES, "book", False, "dieses neue Buch/dieses neue Buch/diesem neuen Buch"),
        ("the", nouns.READABLES, "book", True, "die neuen Bücher/die neuen Bücher/den neuen Büchern"),
        ("no", nouns.READABLES, "letter", True, "keine neuen Briefe/keine neuen Briefe/keinen neuen Briefen"),
        ("", nouns.READABLES, "letter", True, "neue Briefe/neue Briefe/neuen Briefen"),
        (
            "our",
            nouns.PERSONS,
            "student",
            False,
            "unser neuer Student/unseren neuen Studenten/unserem neuen Studenten",
        ),
    ],
)
def test_declension(determiner: str, kinds: tuple[nouns.Noun, ...], name: str, plural: bool, forms: str) -> None:
    noun = next(noun for noun in kinds if noun.en == name)
    phrase = noun_phrase(determiner, noun, adjective=FOR_THINGS[0], plural=plural)
    assert [phrase.de[case] for case in Case] == forms.split("/")


def test_expensive_loses_its_vowel_and_an_stands_before_vowels() -> None:
    expensive = next(adjective for adjective in FOR_THINGS if adjective.en == "expensive")
    phrase = noun_phrase("a", nouns.READABLES[0], adjective=expensive)
    assert (phrase.en_subject, phrase.de[Case.NOMINATIVE]) == ("an expensive book", "ein teures Buch")


@pytest.mark.parametrize(
    ("row", "present", "participle", "zu"),
    [
        ("buy/bought/bought | kaufen", "kaufe kaufst kauft kaufen kaufen", "gekauft", "zu kaufen"),
        ("wait for | warten", "warte wartest wartet warten warten", "gewartet", "zu warten"),
        ("greet | grüßen", "grüße grüßt grüßt grüßen grüßen", "gegrüßt", "zu grüßen"),
        ("call | an-rufen gerufen", "rufe rufst ruft rufen rufen", "angerufen", "anzurufen"),
        (
            "know/knew/known | wissen weißt/weiß gewusst",
            "weiß weißt weiß wissen wissen",
            "gewusst",
            "zu wissen",
        ),
    ],
)
def test_conjugation(row: str, present: str, participle: str, zu: str) -> None:
    read = verb(row)
    assert [read.german_present(person) for person in Person] == present.split()
    assert read.german_participle() == participle
    assert read.german_zu() == zu


def test_verbs_of_motion_have_sein() -> None:
    assert lexicon.TRAVEL.perfect[Person.SINGULAR] == "ist"
