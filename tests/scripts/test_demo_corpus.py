"""The corpus: the same bytes everywhere, disjoint parts, known sentences in both languages."""

import hashlib
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from demo_corpus import corpus, lexicon, nouns
from demo_corpus.clauses import (
    Clause,
    Complements,
    infinitive,
    question,
    statement,
    subordinate,
    with_time_first,
)
from demo_corpus.noun_phrases import PRONOUNS, Person, noun_phrase
from demo_corpus.nouns import Case
from demo_corpus.pair import Pair
from demo_corpus.predicates import active, being, passive
from demo_corpus.verbs import Tense, verb

TEACHER = noun_phrase("the", nouns.PERSONS[0])
ME = Complements(en_objects="me", de_persons="mich")
A_BOOK = Complements(en_objects="a book", de_objects="ein Buch")
NO_BOOK = Complements(en_objects="a book", de_objects="kein Buch", kein=True)
THE_BOOK = Complements(en_objects="the book", de_objects="das Buch")
TO_BERLIN = Complements(en_after="to Berlin", de_aim="nach Berlin")
MONDAY = Pair("on Monday", "am Montag")
CALL = verb("call | an-rufen gerufen")
BUY = verb("buy/bought/bought | kaufen")


@pytest.fixture(scope="module")
def parts() -> dict[str, list[Pair]]:
    return corpus.splits()


def test_the_files_are_the_same_everywhere(tmp_path: Path) -> None:
    corpus.write(tmp_path)
    digest = hashlib.sha256()
    for file in sorted(tmp_path.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    assert digest.hexdigest() == "330bad9f8f0d05d659e944d9beff879a03b1ada4134bb6199ca7d28f6519c14c"


def test_sizes(parts: dict[str, list[Pair]]) -> None:
    assert {name: len(pairs) for name, pairs in parts.items()} == {"train": 12000, "valid": 500, "test": 500}


@pytest.mark.parametrize("language", Pair._fields)
def test_no_sentence_is_repeated(parts: dict[str, list[Pair]], language: str) -> None:
    everything = [getattr(pair, language) for pairs in parts.values() for pair in pairs]
    assert len(set(everything)) == len(everything)


def test_another_seed_is_another_corpus() -> None:
    assert list(islice(corpus.draw(1), 20)) != list(islice(corpus.draw(2), 20))


def test_a_grammar_with_two_translations_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def undecided(rng: Random) -> Pair:
        return Pair("Yes.", rng.choice(("Ja.", "Doch.")))

    monkeypatch.setattr(corpus, "_PATTERNS", ((undecided, 1),))
    with pytest.raises(ValueError, match=r"two translations of 'Yes\.'"):
        list(islice(corpus.draw(), 2))


def test_sentences_have_a_capital_and_a_mark(parts: dict[str, list[Pair]]) -> None:
    for pair in parts["train"]:
        for text in pair:
            assert text[0].isupper() and text[-1] in ".?" and "  " not in text, pair


@pytest.mark.parametrize(
    ("tense", "complements", "negated", "english", "german", "last"),
    [
        (Tense.PRESENT, ME, False, "calls me", "ruft mich am Montag an", "mich am Montag anruft"),
        (
            Tense.PRESENT,
            ME,
            True,
            "does not call me",
            "ruft mich am Montag nicht an",
            "mich am Montag nicht anruft",
        ),
        (
            Tense.PAST,
            ME,
            False,
            "called me",
            "hat mich am Montag angerufen",
            "mich am Montag angerufen hat",
        ),
        (
            Tense.CAN,
            ME,
            True,
            "cannot call me",
            "kann mich am Montag nicht anrufen",
            "mich am Montag nicht anrufen kann",
        ),
        (
            Tense.FUTURE,
            ME,
            False,
            "will call me",
            "wird mich am Montag anrufen",
            "mich am Montag anrufen wird",
        ),
    ],
)
def test_a_separable_verb(
    tense: Tense, complements: Complements, negated: bool, english: str, german: str, last: str
) -> None:
    clause = Clause(TEACHER, active(CALL, tense, Person.SINGULAR), complements, MONDAY, negated)
    assert statement(clause) == (f"the teacher {english} on Monday", f"der Lehrer {german}")
    because = subordinate(Pair("because", "weil"), clause)
    assert because == (f"because the teacher {english} on Monday", f"weil der Lehrer {last}")


def test_a_leading_time_inverts_subject_and_verb() -> None:
    clause = Clause(TEACHER, active(BUY, Tense.PRESENT, Person.SINGULAR), A_BOOK, MONDAY)
    assert with_time_first(clause) == (
        "on Monday the teacher buys a book",
        "am Montag kauft der Lehrer ein Buch",
    )


def test_a_negated_indefinite_object_has_kein() -> None:
    clause = Clause(TEACHER, active(BUY, Tense.PAST, Person.SINGULAR), NO_BOOK, None, negated=True)
    assert statement(clause) == ("the teacher did not buy a book", "der Lehrer hat kein Buch gekauft")


def test_questions() -> None:
    clause = Clause(TEACHER, active(BUY, Tense.WANT, Person.SINGULAR), THE_BOOK)
    assert question(clause) == ("does the teacher want to buy the book", "will der Lehrer das Buch kaufen")
    assert question(clause, Pair("why", "warum")) == (
        "why does the teacher want to buy the book",
        "warum will der Lehrer das Buch kaufen",
    )


def test_motion_has_sein_and_nicht_is_before_the_destination() -> None:
    clause = Clause(PRONOUNS[0], active(lexicon.TRAVEL, Tense.PAST, Person.I), TO_BERLIN, MONDAY, True)
    assert statement(clause) == (
        "I did not travel to Berlin on Monday",
        "ich bin am Montag nicht nach Berlin gefahren",
    )


def test_passive_and_being() -> None:
    book = noun_phrase("the", nouns.READABLES[0])
    sold = Clause(book, passive(BUY, True, Person.SINGULAR), time=MONDAY)
    assert statement(sold) == ("the book was bought on Monday", "das Buch wurde am Montag gekauft")
    cheap = Clause(book, being(Pair("cheap", "billig"), False, Person.SINGULAR), negated=True)
    assert statement(cheap) == ("the book is not cheap", "das Buch ist nicht billig")


def test_infinitives_with_zu() -> None:
    assert infinitive(CALL, ME) == ("to call me", "mich anzurufen")
    assert infinitive(BUY, A_BOOK) == ("to buy a book", "ein Buch zu kaufen")


def test_weak_nouns_have_an_ending_in_every_case_but_the_first() -> None:
    student = next(noun for noun in nouns.PERSONS if noun.en == "student")
    assert [student.german(case, False) for case in Case] == ["Student", "Studenten", "Studenten"]
