"""An English-German corpus from a grammar: python scripts/demo_corpus.py FOLDER writes {train,valid,test}.{en,de}.

An English sentence has one German translation, so all can be learned exactly. All machines write the same files.
"""

import re
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

SIZES = {"train": 12000, "valid": 500, "test": 500}

NOMINATIVE, ACCUSATIVE, DATIVE = CASES = range(3)
THIRD, PLURAL = 1, 2  # the form of the verb that a subject takes; 0 is the first person
ARTICLES = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem")}
PLURAL_ARTICLES = ("die", "die", "den")
ENDINGS = {"der": "er", "die": "e", "das": "es", "den": "en", "dem": "em"}
EIN_WORDS = {"a": "ein", "no": "kein", "my": "mein", "his": "sein", "our": "unser", "their": "ihr"}


def rows(text: str) -> list[list[str]]:
    return [row.split() for row in text.split(";")]


def pairs(text: str) -> list[list[str]]:
    return [[part.strip() for part in pair.split("|")] for pair in text.split(";")]


# English, its plural, German, gender, its plural, kind (person, thing, text), and the accusative if it differs.
NOUNS = rows(
    "teacher teachers Lehrer m Lehrer p; doctor doctors Arzt m Ärzte p; woman women Frau f Frauen p;"
    "man men Mann m Männer p; child children Kind n Kinder p; girl girls Mädchen n Mädchen p;"
    "boy boys Junge m Jungen p Jungen; neighbour neighbours Nachbar m Nachbarn p Nachbarn;"
    "student students Student m Studenten p Studenten; friend friends Freund m Freunde p;"
    "sister sisters Schwester f Schwestern p; daughter daughters Tochter f Töchter p;"
    "car cars Auto n Autos t; bicycle bicycles Fahrrad n Fahrräder t; clock clocks Uhr f Uhren t;"
    "lamp lamps Lampe f Lampen t; key keys Schlüssel m Schlüssel t; jacket jackets Jacke f Jacken t;"
    "table tables Tisch m Tische t; chair chairs Stuhl m Stühle t; apple apples Apfel m Äpfel t;"
    "dress dresses Kleid n Kleider t; bag bags Tasche f Taschen t; glass glasses Glas n Gläser t;"
    "book books Buch n Bücher x; letter letters Brief m Briefe x; newspaper newspapers Zeitung f Zeitungen x"
)
ADJECTIVES = {
    "p": rows(
        "old alt; young jung; tall groß; small klein; friendly freundlich; clever klug; poor arm; famous berühmt"
    ),
    "t": rows("new neu; small klein; big groß; heavy schwer; cheap billig; beautiful schön; green grün; red rot"),
}
ADJECTIVES["x"] = ADJECTIVES["t"]
# English infinitive, third person, past, participle, particle or -; German prefix-infinitive, third person, participle;
# haben or sein; object: thing, text, person, person in the dative, both (give), none.
VERBS = rows(
    "buy buys bought bought - kaufen kauft gekauft h t; sell sells sold sold - verkaufen verkauft verkauft h t;"
    "find finds found found - finden findet gefunden h t; need needs needed needed - brauchen braucht gebraucht h t;"
    "forget forgets forgot forgotten - vergessen vergisst vergessen h t;"
    "lose loses lost lost - verlieren verliert verloren h t;"
    "repair repairs repaired repaired - reparieren repariert repariert h t;"
    "bring brings brought brought along mit-bringen bringt gebracht h t;"
    "take takes took taken - nehmen nimmt genommen h t;"
    "translate translates translated translated - übersetzen übersetzt übersetzt h x;"
    "write writes wrote written - schreiben schreibt geschrieben h x;"
    "visit visits visited visited - besuchen besucht besucht h p; call calls called called - an-rufen ruft gerufen h p;"
    "invite invites invited invited - ein-laden lädt geladen h p; see sees saw seen - sehen sieht gesehen h p;"
    "pick picks picked picked up ab-holen holt geholt h p; know knows knew known - kennen kennt gekannt h p;"
    "help helps helped helped - helfen hilft geholfen h d; thank thanks thanked thanked - danken dankt gedankt h d;"
    "follow follows followed followed - folgen folgt gefolgt s d;"
    "give gives gave given - geben gibt gegeben h b; show shows showed shown - zeigen zeigt gezeigt h b;"
    "send sends sent sent - schicken schickt geschickt h b; sleep sleeps slept slept - schlafen schläft geschlafen h n;"
    "get gets got got up auf-stehen steht gestanden s n; come comes came come back zurück-kommen kommt gekommen s n;"
    "arrive arrives arrived arrived - an-kommen kommt gekommen s n;"
    "work works worked worked - arbeiten arbeitet gearbeitet h n"
)
PERFECT = {"h": ("habe", "hat", "haben"), "s": ("bin", "ist", "sind")}
BEFORE = {"h": ("hatte", "hatte", "hatten"), "s": ("war", "war", "waren")}
# English, and German for the first person, the third and the plural.
MODALS = rows("will werde wird werden; can kann kann können; must muss muss müssen; should soll soll sollen")
NOW = pairs("today | heute; every day | jeden Tag; on Monday | am Montag; on Friday | am Freitag; in May | im Mai")
PAST = pairs("yesterday | gestern; last week | letzte Woche; on Sunday | am Sonntag; last year | letztes Jahr")
OFTEN = pairs("often | oft; never | nie; always | immer; sometimes | manchmal")
PLACES = pairs(
    "in the city | in der Stadt; at the station | am Bahnhof; at home | zu Hause; in the garden | im Garten;"
    "in Vienna | in Wien; at the market | auf dem Markt; in the library | in der Bibliothek"
)
JOINS = pairs("because | weil; when | wenn; although | obwohl; before | bevor; so that | sodass; if | falls")
MAIN_JOINS = pairs("and | und; but | aber; for | denn")
SAYS = pairs(
    "Anna knows that | Anna weiß, dass; Peter says that | Peter sagt, dass; Maria asks whether | Maria fragt, ob;"
    "Thomas hopes that | Thomas hofft, dass; Peter asks when | Peter fragt, wann"
)
WHY = pairs(" | ; why | warum; where | wo; how often | wie oft")
# English as subject and object, German by case, the number of the verb's form.
PRONOUNS = rows(
    "I me ich mich mir 0; he him er ihn ihm 1; she her sie sie ihr 1; we us wir uns uns 2; they them sie sie ihnen 2"
)
NAMES = ("Anna", "Peter", "Maria", "Thomas")
# One or two clauses, a and b, in both languages, with words that decide where the German verb stands, and weights.
TEMPLATES = {
    ("{a.english}.", "{a.second}."): (18, [["", ""]]),
    ("{words} {a.english}.", "{words} {a.first}."): (14, PLACES),
    ("{words} {a.question}?", "{words} {a.first}?"): (12, WHY),
    ("{a.english}, {words} {b.english}.", "{a.second}, {words} {b.second}."): (10, MAIN_JOINS),
    ("{a.english} {words} {b.english}.", "{a.second}, {words} {b.last}."): (12, JOINS),
    ("{words} {b.english}, {a.english}.", "{words} {b.last}, {a.first}."): (10, JOINS),
    ("{words} {a.english}.", "{words} {a.last}."): (6, SAYS),
}
ONES = ["-", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
EINS = ["-", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ZEHN = ["-", "-", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
COUNTS = [n for n in range(2, 1000) if 2 <= n % 100 <= 12 or (n % 100 > 20 and n % 10)]


def words(*parts: str) -> str:
    return " ".join(filter(None, parts))


def number(n: int) -> tuple[str, str]:
    """2 to 12, tens with ones, and hundreds with either."""
    hundreds, rest = divmod(n, 100)
    tens, ones = divmod(rest, 10)
    en, de = (ONES[rest], EINS[rest]) if rest < 13 else (f"{TENS[tens]}-{ONES[ones]}", f"{EINS[ones]}und{ZEHN[tens]}")
    return (f"{ONES[hundreds]} hundred and {en}", f"{EINS[hundreds]}hundert{de}") if hundreds else (en, de)


def clock(draw: Random) -> list[str]:
    hour = draw.randint(2, 11)
    full = [f"at {ONES[hour]} o'clock", f"um {EINS[hour]} Uhr"]
    half = [f"at half past {ONES[hour]}", f"um halb {EINS[hour + 1]}"]
    return draw.choice([full, half, [f"at {hour}:15", f"um {hour}.15 Uhr"]])


class Phrase(NamedTuple):
    """A subject or object: English in both places, German by case, the form of the verb."""

    en: tuple[str, str]
    de: tuple[str, ...]
    form: int
    is_pronoun: bool = False


NOTHING = Phrase(("", ""), ("", "", ""), THIRD)


def declined(noun: list[str], word: str, count: str, adjectives: list[list[str]], case: int, plural: bool) -> str:
    """The German noun with its article or number and its adjectives in ``case``."""
    _, _, singular, gender, many, _, *accusative = noun
    article = (PLURAL_ARTICLES if plural else ARTICLES[gender])[case]
    bare = not plural and gender != "f" and article in ("der", "das")  # ein, not einer or eines
    weak = "en" if plural or case == DATIVE or article == "den" else "e"
    if count:
        start, ending = count, ENDINGS[article]
    elif word == "the":
        start, ending = article, weak
    else:
        start, ending = EIN_WORDS[word] + ("" if bare else ENDINGS[article]), ENDINGS[article] if bare else weak
    name = many if plural else accusative[0] if accusative and case != NOMINATIVE else singular
    if plural and case == DATIVE and name[-1] not in "ns":
        name += "n"
    return words(start, *(german + ending for _, german in adjectives), name)


def noun_phrase(draw: Random, kinds: str, depth: int = 0) -> Phrase:
    """A noun of one of ``kinds``; at ``depth`` 1 and more it may have a relative clause."""
    noun = draw.choice([noun for noun in NOUNS if noun[5] in kinds])
    plural = draw.random() < 0.25
    count, zahl = number(draw.choice(COUNTS)) if plural and draw.random() < 0.4 else ("", "")
    word = draw.choice(["the", "the", "my", "his", "our", "their"] if plural else ["the", "the", *EIN_WORDS])
    adjectives = draw.sample(ADJECTIVES[noun[5]], draw.choice([0, 0, 0, 0, 1, 1, 2]))
    named = words(*(adjective[0] for adjective in adjectives), noun[plural])
    en = words(count or ("an" if word == "a" and named[0] in "aeiou" else word), named)
    relative_en, relative_de = relative(draw, noun, plural, depth) if depth and draw.random() < 0.15 else ("", "")
    de = tuple(declined(noun, word, zahl, adjectives, case, plural) + relative_de for case in CASES)
    return Phrase((words(en, relative_en),) * 2, de, PLURAL if plural else THIRD)


def relative(draw: Random, noun: list[str], plural: bool, depth: int) -> tuple[str, str]:
    """A relative clause; the noun is its subject, if it is a person, or its object."""
    articles = PLURAL_ARTICLES if plural else ARTICLES[noun[3]]
    if noun[5] == "p" and draw.random() < 0.6:
        inner = clause(draw, NOTHING._replace(form=PLURAL if plural else THIRD), None, depth - 1)
        return f"who{inner.english}", f", {articles[NOMINATIVE]} {inner.last},"
    verb = draw.choice([verb for verb in VERBS if verb[-1] == ("p" if noun[5] == "p" else "t")])
    inner = clause(draw, None, verb, 0)
    return f"{'whom' if noun[5] == 'p' else 'that'} {inner.english}", f", {articles[ACCUSATIVE]} {inner.last},"


def person(draw: Random, depth: int = 0) -> Phrase:
    chance, name = draw.random(), draw.choice(NAMES)
    if chance < 0.3:
        subject, direct, *german, form = draw.choice(PRONOUNS)
        return Phrase((subject, direct), tuple(german), int(form), is_pronoun=True)
    return Phrase((name,) * 2, (name,) * 3, THIRD) if chance < 0.42 else noun_phrase(draw, "p", depth)


# A clause in English, also as a question, and in German with the finite verb first, second and last.
Clause = namedtuple("Clause", ["english", "question", "first", "second", "last"])


def conjugated(draw: Random, verb: list[str], tense: str, form: int, often: str) -> tuple[str, ...]:
    """English, its auxiliary and verb in a question; German finite verb, closing, and both at the end of a clause."""
    base, third, past, perfect, _, german, er, participle, haben, _ = verb
    prefix, _, infinitive = german.rpartition("-")
    asked = words(often, base)
    if tense == "present":
        en, do = (third, "does") if form == THIRD else (base, "do")
        finite = (infinitive.removesuffix("en") + "e", er, infinitive)[form]
        return words(often, en), do, asked, finite, prefix, prefix + finite
    en, auxiliary, finites, closing = words(often, past), "did", PERFECT[haben], prefix + participle
    if tense == "before":
        auxiliary, finites, asked = "had", BEFORE[haben], words(often, perfect)
        en = words("had", asked)
    elif tense == "modal":
        auxiliary, *finites = draw.choice(MODALS)
        en, closing = words(auxiliary, asked), prefix + infinitive
    return en, auxiliary, asked, finites[form], closing, words(closing, finites[form])


def clause(draw: Random, subject: Phrase | None = None, verb: list[str] | None = None, depth: int = 1) -> Clause:
    """A clause; with a given ``verb`` without its object, which is the noun that the clause describes."""
    subject = subject or person(draw, depth)
    frame = "n" if verb else ""
    verb = verb or draw.choice(VERBS)
    frame, particle = frame or verb[-1], verb[4].strip("-")
    tense = draw.choice(["present", "past", "past", "before", "modal"])
    often = draw.choice(OFTEN) if draw.random() < 0.15 else ["", ""]
    place = draw.choice(PLACES) if draw.random() < 0.2 else ["", ""]
    times = [clock(draw), draw.choice(PAST if tense in ("past", "before") else NOW)]
    time = draw.choice(times) if draw.random() < 0.4 else ["", ""]
    # What follows a relative clause could belong to it.
    depth = 0 if particle or place[0] or time[0] else depth
    thing = noun_phrase(draw, "x" if frame == "x" else "tx", depth) if frame in "txb" else NOTHING
    other = person(draw, depth) if frame in "pdb" else NOTHING
    while (subject.is_pronoun and other.is_pronoun) or other.de == subject.de != NOTHING.de:  # not: we know us
        other = person(draw, depth)
    spoken, auxiliary, asked, finite, closing, joined = conjugated(draw, verb, tense, subject.form, often[0])
    object_de = other.de[ACCUSATIVE if frame == "p" else DATIVE]
    order = (object_de, time[1]) if other.is_pronoun else (time[1], object_de)  # a pronoun precedes the time
    inside = words(*order, often[1], thing.de[ACCUSATIVE], place[1])
    rest = words(other.en[1], thing.en[1], particle, place[0], time[0])
    return Clause(
        f"{subject.en[0]} {words(spoken, rest)}",
        words(auxiliary, subject.en[0], asked, rest),
        words(finite, subject.de[NOMINATIVE], inside, closing),
        words(subject.de[NOMINATIVE], finite, inside, closing),
        words(subject.de[NOMINATIVE], inside, joined),
    )


def clauses(draw: Random) -> tuple[str, str]:
    """One or two clauses, with words that decide where the German verb stands."""
    en, de = draw.choices([*TEMPLATES], [weight for weight, _ in TEMPLATES.values()])[0]
    words_en, words_de = draw.choice(TEMPLATES[en, de][1])
    made = {"a": clause(draw), "b": clause(draw)}
    return en.format(words=words_en, **made), de.format(words=words_de, **made)


def passive(draw: Random) -> tuple[str, str]:
    verb = draw.choice([verb for verb in VERBS if verb[-1] in "tx"])
    thing, by, time = noun_phrase(draw, verb[-1], 1), person(draw), draw.choice(PAST)
    was, wurde = ("were", "wurden") if thing.form == PLURAL else ("was", "wurde")
    participle = verb[5].rpartition("-")[0] + verb[7]
    en = words(thing.en[0], was, verb[3], verb[4].strip("-"), "by", by.en[1], time[0])
    return f"{en}.", words(thing.de[NOMINATIVE], wurde, time[1], "von", by.de[DATIVE], participle) + "."


def costs(draw: Random) -> tuple[str, str]:
    thing, (en, de) = noun_phrase(draw, "tx", 1), number(draw.choice(COUNTS))
    cost, kostet = ("cost", "kosten") if thing.form == PLURAL else ("costs", "kostet")
    return f"{thing.en[0]} {cost} {en} euros.", f"{thing.de[NOMINATIVE]} {kostet} {de} Euro."


PATTERNS = {clauses: 82, passive: 10, costs: 8}


def sentences(seed: int) -> Iterator[tuple[str, str]]:
    """Endless pairs, without an English sentence twice."""
    draw, seen = Random(seed), set()
    while True:
        pair = draw.choices([*PATTERNS], [*PATTERNS.values()])[0](draw)
        en, de = (re.sub(r",(?=[,.?])", "", text[0].upper() + text[1:]) for text in map(str.strip, pair))
        if en not in seen:
            seen.add(en)
            yield en, de


def write(folder: Path, seed: int = 2021) -> None:
    """Write ``train.en``, ``train.de`` and so on, one sentence a line."""
    folder.mkdir(parents=True, exist_ok=True)
    source = sentences(seed)
    for split, size in SIZES.items():
        made = [next(source) for _ in range(size)]
        for language, lines in zip(("en", "de"), zip(*made, strict=True), strict=True):
            (folder / f"{split}.{language}").write_bytes("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) == 2 else "--help"
    sys.exit(__doc__ if folder.startswith("-") else write(Path(folder)))
