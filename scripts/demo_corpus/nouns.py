"""Nouns of both languages and their German case forms."""

from dataclasses import dataclass
from enum import Enum


class Gender(Enum):
    MASCULINE = "m"
    FEMININE = "f"
    NEUTER = "n"


class Case(Enum):
    NOMINATIVE = "nominative"
    ACCUSATIVE = "accusative"
    DATIVE = "dative"


@dataclass(frozen=True)
class Noun:
    """A weak noun (der Student, den Studenten) has its ``weak_form`` in all cases but the nominative."""

    en: str
    de: str
    gender: Gender
    de_plural: str
    en_plural: str = ""
    weak_form: str = ""

    def english(self, plural: bool) -> str:
        if not plural:
            return self.en
        return self.en_plural or _english_plural(self.en)

    def german(self, case: Case, plural: bool) -> str:
        if not plural:
            return self.weak_form if self.weak_form and case is not Case.NOMINATIVE else self.de
        needs_n = case is Case.DATIVE and not self.de_plural.endswith(("n", "s"))
        return self.de_plural + ("n" if needs_n else "")


def _english_plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def _nouns(rows: str) -> tuple[Noun, ...]:
    """Read "english/plural | German gender plural weak form; ..."; English plural and weak form are optional."""
    nouns = []
    for row in rows.split("; "):
        english, german = (side.strip() for side in row.split("|"))
        en, _, en_plural = english.partition("/")
        de, gender, de_plural, *weak_form = german.split()
        nouns.append(Noun(en, de, Gender(gender), de_plural, en_plural, *weak_form))
    return tuple(nouns)


PERSONS = _nouns(
    "teacher | Lehrer m Lehrer; doctor | Arzt m Ärzte; woman/women | Frau f Frauen; man/men | Mann m Männer; "
    "child/children | Kind n Kinder; girl | Mädchen n Mädchen; boy | Junge m Jungen Jungen; "
    "neighbour | Nachbar m Nachbarn Nachbarn; student | Student m Studenten Studenten; friend | Freund m Freunde; "
    "sister | Schwester f Schwestern; daughter | Tochter f Töchter"
)
READABLES = _nouns("book | Buch n Bücher; letter | Brief m Briefe; newspaper | Zeitung f Zeitungen")
FOODS = _nouns("apple | Apfel m Äpfel; cake | Kuchen m Kuchen; egg | Ei n Eier")
MACHINES = _nouns("car | Auto n Autos; bicycle | Fahrrad n Fahrräder; clock | Uhr f Uhren; lamp | Lampe f Lampen")
GOODS = _nouns("key | Schlüssel m Schlüssel; jacket | Jacke f Jacken; dress | Kleid n Kleider; bag | Tasche f Taschen")
FURNITURE = _nouns("table | Tisch m Tische; chair | Stuhl m Stühle; bed | Bett n Betten; cupboard | Schrank m Schränke")
# Things that can be put somewhere.
STANDING = _nouns("lamp | Lampe f Lampen; bag | Tasche f Taschen; bottle | Flasche f Flaschen; glass | Glas n Gläser")
OPENINGS = _nouns("door | Tür f Türen; window | Fenster n Fenster; box | Kiste f Kisten; cupboard | Schrank m Schränke")
EVENTS = _nouns("meeting | Sitzung f Sitzungen; concert | Konzert n Konzerte; party | Feier f Feiern")
VEHICLES = _nouns("train | Zug m Züge; bus | Bus m Busse; ship | Schiff n Schiffe")
THINGS = READABLES + FOODS + MACHINES + GOODS
