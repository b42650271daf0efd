"""Whole numbers in words, cardinal and ordinal, in both languages."""

# fmt: off
_EN_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
_EN_TENS = (
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
)
_DE_SMALL = (
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn",
    "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn",
    "neunzehn",
)
_DE_TENS = (
    "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig",
)
# fmt: on

_EN_IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_DE_IRREGULAR_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}


def english(number: int) -> str:
    """``0 <= number <= 999``: "three hundred and forty-five"."""
    _check(number)
    hundreds, rest = divmod(number, 100)
    words = [f"{_EN_SMALL[hundreds]} hundred"] if hundreds else []
    if rest or not hundreds:
        words.append(_english_below_hundred(rest))
    return " and ".join(words)


def german(number: int) -> str:
    """``0 <= number <= 999``, as in counting: "dreihundertfünfundvierzig", "eins"."""
    _check(number)
    hundreds, rest = divmod(number, 100)
    words = f"{_german_unit(hundreds)}hundert" if hundreds else ""
    return words + (_german_below_hundred(rest) if rest or not hundreds else "")


def english_ordinal(number: int) -> str:
    """``1 <= number <= 999``: "twenty-first"."""
    words = english(number)
    cut = max(words.rfind("-"), words.rfind(" ")) + 1
    last = words[cut:]
    if last in _EN_IRREGULAR_ORDINALS:
        return words[:cut] + _EN_IRREGULAR_ORDINALS[last]
    return (words[:-1] + "ie" if words.endswith("y") else words) + "th"


def german_ordinal(number: int, ending: str) -> str:
    """``1 <= number <= 31`` with an adjective's ending: "dritten", "einundzwanzigste"."""
    if not 1 <= number <= 31:
        raise ValueError(f"{number} is no day of a month")
    if number in _DE_IRREGULAR_ORDINALS:
        return _DE_IRREGULAR_ORDINALS[number] + ending
    return german(number) + ("t" if number < 20 else "st") + ending


def _check(number: int) -> None:
    if not 0 <= number <= 999:
        raise ValueError(f"number words are known from 0 to 999, not for {number}")


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return _EN_SMALL[number]
    tens, units = divmod(number, 10)
    return f"{_EN_TENS[tens - 2]}-{_EN_SMALL[units]}" if units else _EN_TENS[tens - 2]


def _german_below_hundred(number: int) -> str:
    if number < 20:
        return _DE_SMALL[number]
    tens, units = divmod(number, 10)
    return f"{_german_unit(units)}und{_DE_TENS[tens - 2]}" if units else _DE_TENS[tens - 2]


def _german_unit(number: int) -> str:
    """A digit before another word, where "eins" becomes "ein"."""
    return "ein" if number == 1 else _DE_SMALL[number]
