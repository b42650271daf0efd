"""Verbs of both languages: finite forms, infinitives and participles."""

from dataclasses import dataclass
from enum import Enum

from .noun_phrases import Person


class Tense(Enum):
    """English past tense is German perfect; the past of a modal is one word in both languages."""

    PRESENT = "present"
    PAST = "past"
    FUTURE = "future"
    CAN = "can"
    MUST = "must"
    WANT = "want"
    SHOULD = "should"
    COULD = "could"
    HAD_TO = "had to"
    WANTED = "wanted"

    @property
    def told(self) -> bool:
        """Whether it is a past tense."""
        return self in (Tense.PAST, Tense.COULD, Tense.HAD_TO, Tense.WANTED)


def _forms(forms: str) -> dict[Person, str]:
    return dict(zip(Person, forms.split(), strict=True))


HABEN = _forms("habe hast hat haben haben")
SEIN = _forms("bin bist ist sind sind")
WAR = _forms("war warst war waren waren")
WERDEN = _forms("werde wirst wird werden werden")
WURDE = _forms("wurde wurdest wurde wurden wurden")
# Finite verbs with an infinitive, which is at the end of the clause.
WITH_INFINITIVE = {
    Tense.FUTURE: WERDEN,
    Tense.CAN: _forms("kann kannst kann können können"),
    Tense.MUST: _forms("muss musst muss müssen müssen"),
    Tense.WANT: _forms("will willst will wollen wollen"),
    Tense.SHOULD: _forms("soll sollst soll sollen sollen"),
    Tense.COULD: _forms("konnte konntest konnte konnten konnten"),
    Tense.HAD_TO: _forms("musste musstest musste mussten mussten"),
    Tense.WANTED: _forms("wollte wolltest wollte wollten wollten"),
}


@dataclass(frozen=True)
class Verb:
    """``en_rest`` follows the verb (look for), ``en_particle`` its object (pick ... up)."""

    en: str
    en_past: str
    en_participle: str
    en_rest: str
    en_particle: str
    prefix: str
    infinitive: str
    du: str
    er: str
    participle: str
    perfect: dict[Person, str]

    def german_present(self, person: Person) -> str:
        """Without the separable prefix."""
        # wissen has no ending in the singular: ich weiß, er weiß.
        ich = _stem(self.infinitive) + "e" if self.er.endswith("t") else self.er
        forms = {Person.I: ich, Person.YOU: self.du, Person.SINGULAR: self.er}
        return forms.get(person, self.infinitive)

    def english_infinitive(self) -> str:
        return f"{self.en} {self.en_rest}".strip()

    def german_infinitive(self) -> str:
        return self.prefix + self.infinitive

    def german_zu(self) -> str:
        """anzurufen in one word, zu kaufen in two."""
        return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"

    def german_participle(self) -> str:
        return self.prefix + self.participle


def verb(row: str) -> Verb:
    """Read "base/past/participle rest ... particle | prefix-infinitive du/er participle +sein".

    Regular forms may be left out.
    """
    english, german = (side.strip() for side in row.split("|"))
    en_words, _, en_particle = english.partition(" ... ")
    en_forms, _, en_rest = en_words.partition(" ")
    en, *irregular = en_forms.split("/")
    en_past, en_participle = irregular or (_english_past(en), _english_past(en))
    infinitive, *options = german.split()
    prefix, _, infinitive = infinitive.rpartition("-")
    stem = _stem(infinitive)
    du, er, participle, perfect = _du(stem), stem + _e(stem) + "t", f"ge{stem}{_e(stem)}t", HABEN
    for option in options:
        if option == "+sein":
            perfect = SEIN
        elif "/" in option:
            du, er = option.split("/")
        else:
            participle = option
    return Verb(en, en_past, en_participle, en_rest, en_particle, prefix, infinitive, du, er, participle, perfect)


def third_person(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


def _english_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + "ed"


def _stem(infinitive: str) -> str:
    return infinitive.removesuffix("en")


def _e(stem: str) -> str:
    """The vowel of wartet and findet."""
    return "e" if stem.endswith(("d", "t")) else ""


def _du(stem: str) -> str:
    return stem + ("t" if stem.endswith(("s", "ß", "z")) else _e(stem) + "st")
