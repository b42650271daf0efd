"""The demo's corpus: the same bytes everywhere, disjoint parts, and right German."""

import hashlib
from itertools import islice
from random import Random

import pytest

import demo_corpus
from demo_corpus import ACCUSATIVE, ADJECTIVES, DATIVE, NOMINATIVE, NOUNS, VERBS


def noun(english):
    return next(noun for noun in NOUNS if noun[0] == english)


def verb(english):
    return next(verb for verb in VERBS if verb[0] == english)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    demo_corpus.write(folder)
    return folder


def test_the_files_are_the_same_everywhere(folder):
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    assert digest.hexdigest() == "fbb9990a5aeb699794070164cd7291414d65a6f61ca7ec1b511525934800f32c"


def test_parts_have_their_sizes_and_no_english_sentence_is_repeated(folder):
    parts = {name: (folder / f"{name}.en").read_text().splitlines() for name in demo_corpus.SIZES}
    assert {name: len(lines) for name, lines in parts.items()} == demo_corpus.SIZES
    lines = [line for part in parts.values() for line in part]
    assert len(set(lines)) == len(lines)


def test_another_seed_is_another_corpus():
    one, other = (list(islice(demo_corpus.sentences(seed), 20)) for seed in (1, 2))
    assert not set(one) & set(other)


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("Peter asks when ", "Peter fragt, wann "),  # the verb stands last
        (" who ", ", d"),  # a relative clause
        ("Did ", "at "),  # a question
    ],
)
def test_sentences_of_every_kind_are_there(folder, english, german):
    pairs = zip(*((folder / f"train.{side}").read_text().splitlines() for side in ("en", "de")), strict=True)
    assert sum(english in en and german in de for en, de in pairs) > 20


@pytest.mark.parametrize(
    ("english", "word", "case", "plural", "german"),
    [
        ("teacher", "the", NOMINATIVE, False, "der alte Lehrer"),
        ("teacher", "a", NOMINATIVE, False, "ein alter Lehrer"),
        ("teacher", "no", ACCUSATIVE, False, "keinen alten Lehrer"),
        ("teacher", "my", DATIVE, False, "meinem alten Lehrer"),
        ("woman", "the", DATIVE, False, "der alten Frau"),
        ("woman", "our", ACCUSATIVE, False, "unsere alte Frau"),
        ("child", "his", ACCUSATIVE, False, "sein altes Kind"),
        ("child", "the", ACCUSATIVE, False, "das alte Kind"),
        ("child", "the", DATIVE, True, "den alten Kindern"),
        ("boy", "the", ACCUSATIVE, False, "den alten Jungen"),
        ("student", "a", DATIVE, False, "einem alten Studenten"),
        ("friend", "their", NOMINATIVE, True, "ihre alten Freunde"),
    ],
)
def test_declension(english, word, case, plural, german):
    assert demo_corpus.declined(noun(english), word, "", [ADJECTIVES["p"][0]], case, plural) == german


def test_declension_after_a_number():
    forms = [demo_corpus.declined(noun("man"), "the", "drei", [ADJECTIVES["p"][0]], case, True) for case in range(3)]
    assert forms == ["drei alte Männer", "drei alte Männer", "drei alten Männern"]


@pytest.mark.parametrize(
    ("english", "tense", "form", "spoken"),
    [
        ("call", "present", demo_corpus.THIRD, ("calls", "does", "call", "ruft", "an", "anruft")),
        ("call", "past", 0, ("called", "did", "call", "habe", "angerufen", "angerufen habe")),
        ("get", "before", demo_corpus.PLURAL, ("had got", "had", "got", "waren", "aufgestanden", "aufgestanden waren")),
        ("help", "present", demo_corpus.PLURAL, ("help", "do", "help", "helfen", "", "helfen")),
    ],
)
def test_conjugation(english, tense, form, spoken):
    assert demo_corpus.conjugated(Random(0), verb(english), tense, form, "") == spoken


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (12, ("twelve", "zwölf")),
        (21, ("twenty-one", "einundzwanzig")),
        (342, ("three hundred and forty-two", "dreihundertzweiundvierzig")),
        (905, ("nine hundred and five", "neunhundertfünf")),
    ],
)
def test_numbers(number, words):
    assert demo_corpus.number(number) == words
