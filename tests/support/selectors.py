"""Random SQL92 selectors, texts near them, and properties that hit their conversions."""

from __future__ import annotations

from random import Random

NAMES = ("a", "b", "c", "A", "$x_1", "TAGS", "missing")
INTEGERS = (
    *("0", "1", "2", "3", "10", "42", "007", "2147483647", "2147483648", "4294967296", "5L", "5l", "1L"),
    *("9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808"),
)
FLOATS = (
    *("0.0", "1.0", "2.5", ".5", "5.", "1e3", "5E10", "5.e-1", "1E400", "4.9E-324", "1e-400", "1.7976931348623157e308"),
    *("2147483648.0", "9007199254740992.0", "9223372036854775807.0", "00.5", "1e0"),
)
STRINGS = ("'x'", "''", "'it''s'", "'true'", "'TRUE'", "'1'", "'2.5'", "'a b'", "'Ж'", "'\U0001f600'", "'\n'", "'tr'")
TEXTS = (
    *("", "x", "it's", "true", "TRUE", "tRuE", "false", "a b", "Ж", "\U0001f600", "\n", "trx", "xtr", " "),
    *("0", "1", "-1", "+1", "2", "3", "10", "42", "007", "-0", "1.0", "2.5", " 1", "1 ", "-", "+", "--1", "1_0", "1L"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9007199254740993", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "-9223372036854775809", "0" * 30 + "7", "9" * 5000),
    *("NaN", "nan", "-NaN", "Infinity", "-Infinity", "inf", "INFINITY", "0.0", "-0.0", ".5", "5.", ".", "1e3"),
    *("1e", "1e+", "1d", "1.5f", "1D ", "1e400", "-1e400", "1e-400", "4.9E-324", "1.7976931348623157E308"),
    *("0x1p3", "0x1.8p1d", "0x10", "0x1.p-99999", "\u0001 5.5 \u0000", "\u00b2", "\u00a01", "1\u3000"),
    *("\u0661\u0662", "\uff11", "\U0001d7ce"),
)
BLANKS = (" ", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\f", "/**/", "/* a = 1 ** */", "-- note\n", "--\r")
WORDS = (
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"),
    *("=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "--", "/*", "'", '"', "#", ";", "!", "!=", "=="),
    *(".", "%", "*", "/", "[", "@", "\\", "~", "LIKE"),
    *("\x00", "\x1a", "\x0b", "\u00a0", "\u212a", "\u0130N", "Ж", "\U0001f600"),
)
ORDERS = ("<", "<=", ">", ">=")


def random_selector(random: Random, depth: int = 3) -> str:
    """Return a selector, mostly one that parses."""
    return _blanked(random, _condition(random, depth))


def random_words(random: Random) -> str:
    """Return a row of words, mostly one that does not parse."""
    pool = (*WORDS, *NAMES, random.choice(INTEGERS), random.choice(FLOATS), random.choice(STRINGS))
    words = [random.choice(pool) for _ in range(random.randrange(8))]
    if random.random() < 0.6:
        words[:0] = [random.choice(NAMES), random.choice(("=", "<>", ">")), random.choice(("1", "b", "'x'", "2.5"))]
    return "".join(word + random.choice(("", *BLANKS)) for word in words)


def damaged_selector(random: Random) -> str:
    """Return a selector with a few characters gone, doubled, or exchanged."""
    text = list(random_selector(random, 2))
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(text))
        text[at : at + random.randrange(3)] = random.choice(("", text[at], text[at] * 2, *WORDS, "0", "e", "'"))
        if not text:
            break
    return "".join(text)


def random_properties(random: Random) -> dict[str, str]:
    """Return the properties of a message."""
    return {name: random.choice(TEXTS) for name in NAMES[:-1] if random.random() < 0.75}


def _blanked(random: Random, words: list[str]) -> str:
    return "".join(_cased(random, word) + random.choice(BLANKS) for word in words)


def _cased(random: Random, word: str) -> str:
    if word in WORDS and word.isalpha() and random.random() < 0.3:
        return "".join(random.choice((character.lower(), character.upper())) for character in word)
    return word


def _condition(random: Random, depth: int) -> list[str]:
    """Return the words of a condition; now and then of a value, which is refused where truth is wanted."""
    choice = random.randrange(20)
    if depth <= 0 or choice == 0:
        return [random.choice((*NAMES, "TRUE", "FALSE", "NULL"))]
    if choice < 8:
        words = _condition(random, depth - 1)
        for _ in range(random.randrange(1, 4)):
            words += [random.choice(("AND", "OR")), *_condition(random, depth - 1)]
        return words
    if choice < 10:
        return ["NOT", "(", *_condition(random, depth - 1), ")"]
    if choice == 10:
        return ["(", *_condition(random, depth - 1), ")"]
    return _comparison(random, depth)


def _comparison(random: Random, depth: int) -> list[str]:
    left = _value(random, depth)
    maybe = ["NOT"] * random.randrange(2)
    match random.randrange(8):
        case 0:
            return [*left, "IS", *maybe, "NULL"]
        case 1:
            return [
                *left,
                *maybe,
                "BETWEEN",
                *_value(random, depth, order=True),
                "AND",
                *_value(random, depth, order=True),
            ]
        case 2:
            texts = [word for _ in range(random.randrange(1, 7)) for word in (random.choice(STRINGS), ",")]
            return [random.choice(NAMES), *maybe, "IN", "(", *texts[:-1], ")"]
        case 3:
            how = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return [*left, *maybe, how, random.choice(STRINGS)]
        case 4 | 5:
            return [*left, random.choice(ORDERS), *_value(random, depth, order=True)]
        case _:
            return [*left, random.choice(("=", "<>")), *_value(random, depth)]


def _value(random: Random, depth: int, *, order: bool = False) -> list[str]:
    signs = random.choice(([], [], [], [], ["-"], ["+"], ["-", "-"], ["+", "-"]))
    choice = random.randrange(12 if order else 16)
    if choice < 5:
        return [*(signs if random.random() < 0.2 else []), random.choice(NAMES)]
    if choice < 8:
        return [*signs, random.choice(INTEGERS)]
    if choice < 11:
        return [*signs, random.choice(FLOATS)]
    if choice < 13:
        return [random.choice(STRINGS)]
    if choice < 14:
        return [random.choice(("TRUE", "FALSE", "NULL"))]
    return [*(["-"] if choice == 15 and random.random() < 0.3 else []), "(", *_condition(random, depth - 1), ")"]
