"""Selectors, tag expressions, bloom bits and the numbers in texts: the real classes and ours give the same answers."""

from __future__ import annotations

import math
import os
import shutil
import struct
import subprocess
from base64 import b64decode, b64encode
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from rmqtool.filters.expressions import truth_of
from rmqtool.filters.sql92 import SEARCHES, Dialect, FilterSyntaxError, Selector, parse_selector
from rmqtool.filters.tags import parse_tags
from rmqtool.formats.bloom import bit_positions
from rmqtool.formats.java import parse_double, parse_int, parse_long
from tests.support import selectors
from tests.unit.filters import test_sql92

DRIVER = Path(__file__).parent / "java" / "SqlDiff.java"
DIALECTS = {"4.9.7": Dialect.V4, "5.3.3": Dialect.V5, "5.4.0": Dialect.V5}
SELECTORS = 20_000
MESSAGES = 5

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("version", DIALECTS)]


def packages(version: str) -> Path:
    """Return the directory of the real classes, fetched when they are not there yet."""
    cache = Path(os.environ.get("RMQTOOL_ORACLE", Path.home() / ".cache" / "rmqtool-oracle"))
    for home in (cache / version, cache / f"filter-{version}"):
        if any(home.glob(f"lib/rocketmq-filter-{version}.jar")):
            return home / "lib"
    if not shutil.which("mvn"):
        pytest.skip("Maven is not installed")
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(
        "<project xmlns='http://maven.apache.org/POM/4.0.0'><modelVersion>4.0.0</modelVersion>"
        "<groupId>rmqtool</groupId><artifactId>filters</artifactId><version>1</version><dependencies><dependency>"
        f"<groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-filter</artifactId><version>{version}</version>"
        "</dependency></dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    if subprocess.run(command, cwd=home, check=False).returncode:
        pytest.skip(f"Maven could not fetch rocketmq-filter {version}")
    return home / "lib"


def ask(version: str, questions: list[list[str]], folder: Path) -> list[list[str]]:
    """Return the real classes' answers: of each line the words."""
    if not shutil.which("javac"):
        pytest.skip("javac is not installed")
    classes = f"{packages(version)}/*"
    subprocess.run(["javac", "-nowarn", "-cp", classes, "-d", str(folder), str(DRIVER)], check=True)
    lines = "\n".join("\t".join(words) for words in questions)
    command = ["java", "-Xmx512m", "-cp", f"{folder}{os.pathsep}{classes}", "SqlDiff"]
    done = subprocess.run(command, input=lines.encode("ascii"), stdout=subprocess.PIPE, check=True)
    answers = [line.split("\t") for line in done.stdout.decode("ascii").splitlines()]
    assert len(answers) == len(questions)
    return answers


def word(text: str) -> str:
    return b64encode(text.encode()).decode()


def parsed(text: str, dialect: Dialect) -> Selector | None:
    try:
        return parse_selector(text, dialect=dialect)
    except FilterSyntaxError:
        return None


def test_selectors(version: str, tmp_path: Path) -> None:
    random = Random(version)
    makers = (selectors.random_selector, selectors.random_selector, selectors.random_words, selectors.damaged_selector)
    asked: list[tuple[str, dict[str, str] | None]] = []
    for _ in range(SELECTORS):
        text = random.choice(makers)(random)
        asked += [(text, None), *((text, selectors.random_properties(random)) for _ in range(MESSAGES))]
    questions = [
        ["S", word(text)]
        if properties is None
        else ["P", *(word(part) for item in properties.items() for part in item)]
        for text, properties in asked
    ]
    answers = ask(version, questions, tmp_path)
    selector = None
    seen: Counter[str] = Counter()
    for (text, properties), (answer,) in zip(asked, answers, strict=True):
        if properties is None:
            selector = parsed(text, DIALECTS[version])
            ours = "refused" if selector is None else "ok"
        elif selector is None:
            continue
        else:
            ours = "FTUX"[truth_of(selector.expression, properties)]
        assert ours == answer, (text, properties)
        seen[answer] += 1
    # The random texts reach every kind of answer, each of them often.
    assert set(seen) == {"ok", "refused", "F", "T", "U", "X"}
    assert min(seen.values()) > SELECTORS // 4, seen


def test_the_tables_of_the_unit_tests(version: str, tmp_path: Path) -> None:
    """What stands in those tables as expected is what the real classes say; searches are unknown to 4.x."""

    def is_known(text: str) -> bool:
        return DIALECTS[version] is Dialect.V5 or not any(word in text for word in SEARCHES)

    questions, expected = [], []
    for _, text, properties, truth in test_sql92.ANSWERS:
        if is_known(text):
            questions += [["S", word(text)], ["P", *(word(part) for item in properties.items() for part in item)]]
            expected += [["ok"], ["FTUX"[truth]]]
    for table, answer in ((test_sql92.REFUSED, "refused"), (test_sql92.IGNORED, "ok")):
        texts = [text for _, text, _ in table if is_known(text)]
        questions += [["S", word(text)] for text in texts]
        expected += [[answer]] * len(texts)
    assert len(questions) > 200
    for question, answered, known in zip(questions, ask(version, questions, tmp_path), expected, strict=True):
        assert answered == known, [b64decode(part) for part in question[1:]]


NUMBER_PARTS = (
    *("0", "1", "5", "9", "00", "123456789", "9" * 30, ".", "e", "E", "+", "-", "f", "d", "F", "D", "L", "_", " "),
    *("\t", "\x00", "\u00a0", "\u0663", "\uff15", "\U0001d7ce", "0x", "0X", "p", "P", "a", "NaN", "Infinity"),
    *("e10", "e-5", "e308", "p-1074", "p1023", "4.9E-324", "2.2250738585072012e-308", "1.7976931348623159e308"),
    *("e99999999999", "e-99999999999", "p99999999999", "p-99999999999"),
)


def random_number(random: Random) -> str:
    whole, fraction = random.getrandbits(random.randrange(1, 120)), random.getrandbits(40)
    match random.randrange(4):
        case 0:
            return f"{whole}.{fraction}e{random.randrange(-360, 360)}"
        case 1:
            return f"0x{whole:x}.{fraction:x}p{random.randrange(-1150, 1100)}"
        case _:
            return "".join(random.choice(NUMBER_PARTS) for _ in range(random.randrange(1, 6)))


def double_bits(value: float) -> int:
    """Return ``Double.doubleToLongBits(value)``."""
    bits: int = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))[0]
    return bits


def test_numbers(version: str, tmp_path: Path) -> None:
    random = Random(version)
    asked = [(kind, text) for text in selectors.TEXTS for kind in "DIL"]
    asked += [(random.choice("DDIL"), random_number(random)) for _ in range(100_000)]
    first_plane = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
    asked += [(kind, character) for character in first_plane for kind in "ID"]
    answers = ask(version, [[kind, word(text)] for kind, text in asked], tmp_path)
    parsers = {"D": parse_double, "I": parse_int, "L": parse_long}
    for (kind, text), (answer,) in zip(asked, answers, strict=True):
        value = parsers[kind](text)
        number = double_bits(value) if value is not None and kind == "D" else value
        assert ("X" if number is None else str(number)) == answer, (kind, text)
    assert sum(answer != ["X"] for answer in answers) > 10_000


def test_tag_expressions(version: str, tmp_path: Path) -> None:
    random = Random(version)
    parts = (*("||",) * 3, "|", "TagA", "TagB", "Aa", "BB", "*", " ", "\t", "\x01", "\u00a0", "Ж", "\U0001f600", "a b")
    asked = ["".join(random.choice(parts) for _ in range(random.randrange(6))) for _ in range(20_000)]
    seen = set()
    for text, answer in zip(asked, ask(version, [["G", word(text)] for text in asked], tmp_path), strict=True):
        seen.add(answer[0])
        try:
            tags = parse_tags(text)
        except FilterSyntaxError:
            assert answer == ["refused"], text
            continue
        if tags.everything:
            assert answer == ["all"], text
            continue
        names = {b64decode(found).decode() for found in answer[1 : 1 + len(tags.names)]}
        assert (answer[0], names) == ("some", set(tags.names)), text
        assert {int(code) for code in answer[1 + len(tags.names) :]} == tags.codes, text
    assert seen == {"refused", "all", "some"}


def test_bloom_positions(version: str, tmp_path: Path) -> None:
    random = Random(version)
    letters = "abcXYZ_-%|09Ж\U0001f600"
    pairs = [tuple("".join(random.choices(letters, k=random.randrange(1, 60))) for _ in range(2)) for _ in range(5_000)]
    answers = ask(version, [["B", word("#".join(pair))] for pair in pairs], tmp_path)
    for (group, topic), answer in zip(pairs, answers, strict=True):
        assert list(bit_positions(group, topic)) == list(map(int, answer)), (group, topic)
