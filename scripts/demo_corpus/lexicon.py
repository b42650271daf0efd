"""The verbs and their objects, places and means of travel."""

from . import nouns
from .nouns import Case, Noun
from .pair import Pair, pairs
from .verbs import Verb, verb


def _verbs(rows: str) -> tuple[Verb, ...]:
    return tuple(map(verb, rows.split("; ")))


# A verb, and the things that can be its accusative object.
WITH_THING: tuple[tuple[Verb, tuple[Noun, ...]], ...] = (
    (verb("buy/bought/bought | kaufen"), nouns.THINGS + nouns.FURNITURE),
    (verb("sell/sold/sold | verkaufen verkauft"), nouns.THINGS + nouns.FURNITURE),
    (verb("look for | suchen"), nouns.READABLES + nouns.GOODS),
    (verb("find/found/found | finden gefunden"), nouns.READABLES + nouns.GOODS),
    (verb("need | brauchen"), nouns.MACHINES + nouns.GOODS + nouns.FURNITURE),
    (verb("forget/forgot/forgotten | vergessen vergisst/vergisst vergessen"), nouns.READABLES + nouns.GOODS),
    (verb("lose/lost/lost | verlieren verloren"), nouns.GOODS),
    (verb("repair | reparieren repariert"), nouns.MACHINES + nouns.FURNITURE),
    (verb("read/read/read | lesen liest/liest gelesen"), nouns.READABLES),
    (verb("write/wrote/written | schreiben geschrieben"), nouns.READABLES),
    (verb("eat/ate/eaten | essen isst/isst gegessen"), nouns.FOODS),
    (verb("open | auf-machen"), nouns.OPENINGS),
    (verb("close | zu-machen"), nouns.OPENINGS),
    (verb("bring/brought/brought ... along | mit-bringen gebracht"), nouns.THINGS),
)
WITH_PERSON = _verbs(
    "visit | besuchen besucht; call | an-rufen gerufen; invite | ein-laden lädst/lädt geladen; ask | fragen; "
    "see/saw/seen | sehen siehst/sieht gesehen; pick/picked/picked ... up | ab-holen"
)
WITH_DATIVE = _verbs("help | helfen hilfst/hilft geholfen; thank | danken; answer | antworten")
ASK = verb("ask | fragen")
KNOW_PERSON = _verbs("know/knew/known | kennen gekannt; see/saw/seen | sehen siehst/sieht gesehen; love | lieben")
GIVING = _verbs(
    "give/gave/given | geben gibst/gibt gegeben; show/showed/shown | zeigen; send/sent/sent | schicken; "
    "sell/sold/sold | verkaufen verkauft"
)
WAIT = verb("wait for | warten")
# The English preposition is part of the verb; the German one has its case.
WITH_PREPOSITION: tuple[tuple[Verb, str, Case], ...] = (
    (WAIT, "auf", Case.ACCUSATIVE),
    (verb("think/thought/thought of | denken gedacht"), "an", Case.ACCUSATIVE),
    (verb("talk to | sprechen sprichst/spricht gesprochen"), "mit", Case.DATIVE),
)
WITHOUT_OBJECT = _verbs(
    "get/got/got up | auf-stehen gestanden +sein; arrive | an-kommen gekommen +sein; "
    "come/came/come back | zurück-kommen gekommen +sein"
)
STAYING = _verbs("work | arbeiten; sleep/slept/slept | schlafen schläfst/schläft geschlafen; dance | tanzen")
GOING = _verbs("go/went/gone | gehen gegangen +sein; run/ran/run | laufen läufst/läuft gelaufen +sein")
TRAVEL = verb("travel/travelled/travelled | fahren fährst/fährt gefahren +sein")
PUT = verb("put/put/put | stellen")
LEAVE = verb("leave/left/left | ab-fahren fährst/fährt gefahren +sein")
ARRIVE = verb("arrive | an-kommen gekommen +sein")
BEGIN = verb("begin/began/begun | beginnen begonnen")
END = verb("end | enden")
COST = verb("cost/cost/cost | kosten")
BEAR = verb("bear/bore/born | gebären gebierst/gebiert geboren")
PAY = verb("pay/paid/paid | bezahlen bezahlt")

# Verbs with "to", zu and an infinitive.
WITH_ZU = _verbs(
    "try | versuchen versucht; hope | hoffen; promise | versprechen versprichst/verspricht versprochen; "
    "forget/forgot/forgotten | vergessen vergisst/vergisst vergessen; "
    "begin/began/begun | an-fangen fängst/fängt gefangen"
)
# Verbs of knowing and saying, before "that".
WITH_THAT = _verbs(
    "know/knew/known | wissen weißt/weiß gewusst; say/said/said | sagen; think/thought/thought | denken gedacht; "
    "hope | hoffen"
)

WHERE = pairs(
    "in the city | in der Stadt; in the supermarket | im Supermarkt; at the station | am Bahnhof; "
    "at school | in der Schule; at home | zu Hause; in the garden | im Garten; in the library | in der Bibliothek; "
    "at the market | auf dem Markt; in Berlin | in Berlin; in Vienna | in Wien"
)
WHERE_TO = pairs(
    "to the city | in die Stadt; to the supermarket | in den Supermarkt; to the station | zum Bahnhof; "
    "to school | zur Schule; home | nach Hause; into the garden | in den Garten; to the library | in die Bibliothek; "
    "to the market | auf den Markt"
)
CITIES = pairs("Berlin | Berlin; Hamburg | Hamburg; London | London; Vienna | Wien; Munich | München")
BY = pairs("by bus | mit dem Bus; by train | mit dem Zug; by bicycle | mit dem Fahrrad; by car | mit dem Auto")
COMPANY: tuple[tuple[Pair, Case], ...] = (
    (Pair("with", "mit"), Case.DATIVE),
    (Pair("without", "ohne"), Case.ACCUSATIVE),
    (Pair("for", "für"), Case.ACCUSATIVE),
)
# With furniture: dative for a place, accusative for a direction.
BESIDE = pairs("on | auf; under | unter; behind | hinter; next to | neben; in front of | vor")
