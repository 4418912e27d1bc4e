"""The kernel under address and undefined-behaviour sanitizers, fed with damaged segments; and canaries that must die.

Some seconds in the default run, ten minutes in the long one. `clang -fsanitize=fuzzer` can drive the same entry.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.builders import EXAMPLE_A, EXAMPLE_B, EXAMPLE_C, EXAMPLE_D, properties, record
from tests.support.seeded_stores import make_segment

NATIVE = Path(__file__).resolve().parents[2] / "native"
COMPILER = shutil.which("gcc")
SANITIZERS = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="gcc is not installed"),
    pytest.mark.xdist_group("kernel fuzz"),
]


SEND = (
    b'{"code":310,"extFields":{"a":"g","b":"T","c":"M","d":"4","e":"3","f":"0","g":"17","h":"7","i":"a\\u00011\\u0002"},'
    b'"flag":0,"language":"JAVA","opaque":3,"version":475}'
)
PULL = (
    b'{"code":11,"extFields":{"consumerGroup":"g","topic":"T","queueId":"3","queueOffset":"17","maxMsgNums":"32","sysFlag":"3",'
    b'"commitOffset":"7","suspendTimeoutMillis":"9","subVersion":"1","expressionType":"TAG"},"flag":0,"opaque":3}'
)


def compile_fuzzer(sources: Path, target: Path) -> Path:
    command = [str(COMPILER), *SANITIZERS, "-DDRIVER", "-o", str(target), str(sources / "fuzz.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("seeds")
    delayed = properties(("DELAY", "3"), ("KEYS", "a b  c"), ("TAGS", "t"), ("x", 'quote " \\ é'))
    contents = [
        EXAMPLE_A + EXAMPLE_B + EXAMPLE_C + EXAMPLE_D,
        record(b"body", b"SCHEDULE_TOPIC_XXXX", delayed) * 3,
        *(make_segment(seed).data for seed in range(0, 60, 3)),
        b"".join(
            struct.pack(">5i", 28 + length, 0, 0, 7, length) + bytes(length) + b"\0\6KEYS\1k" for length in (0, 1, 300)
        ),
        *(struct.pack(">ii", 4 + len(one) + 9, len(one)) + one + bytes(9) for one in (SEND, PULL)),
        record(b"", b"T", properties(*((f"name{number}", "v") for number in range(60)))) * 2,
        b"".join(b"\0\5topic\0\0\0%c%s" % (length, b"x" * length) for length in (1, 9, 200)),
    ]
    for number, content in enumerate(contents):
        (directory / str(number)).write_bytes(content)
    return sorted(directory.iterdir())


def fuzz(program: Path, seconds: int, seeds: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run it for so many seconds of processor time."""
    words = [str(program), str(seconds), "7", *map(str, seeds)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("seconds", [3, pytest.param(600, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_no_access_leaves_its_buffer(seconds: int, seeds: list[Path], tmp_path: Path) -> None:
    done = fuzz(compile_fuzzer(NATIVE, tmp_path / "fuzz"), seconds, seeds)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 100 * seconds


# A check of the kernel that is taken out, and where.
CANARIES = {
    "body length": ("record.h", "if (r->body_length > r->size - least) return 0;", ""),
    "end of the topic": ("record.h", "if (r->properties > r->size) return 0;", ""),
    "sum of the lengths": ("record.h", " && r->properties + r->properties_length == r->size;", ";"),
    "size of the record": ("record.h", " || r->size > left) return 0;", ") return 0;"),
    "offset of a caller": ("record.h", "at >= 0 && at <= end && look_at", "look_at"),
    "room for keys": ("dispatch.h", "if (d->keys + 1 + (named.keys.length + 1) / 2 > d->most_keys) return 0;", ""),
    "room for a line": ("json.h", "NAMES + TIMES * (size_t)r.size) break;", "(size_t)r.size) break;"),
    "length of a name": ("fields.h", "if (field->name.length + VALUE_LENGTH_SIZE > left) return 0;", ""),
    "length of a value": ("fields.h", "if (field->value.length > left) return 0;", ""),
    "offset of one record": ("dispatch.h", "if (!look_within(data, end, at, &s->parts)) return 0;", ""),
    "end of a batch": ("batch.h", "if (left < LEAST_ITEM) return 0;", ""),
    "size of a message in a batch": ("batch.h", " || item->size > left) return 0;", ") return 0;"),
    "body in a batch": ("batch.h", "if (body > item->size - LEAST_ITEM) return 0;", ""),
    "lengths in a batch": ("batch.h", " || LEAST_ITEM + body + length != item->size", ""),
    "room for places": ("batch.h", "count < most && look_at(p + at", "look_at(p + at"),
    "last separator": ("encode.h", "if (t->is_terminated || i + 1 < t->count) *to++", "*to++"),
    "end of a frame": ("request.h", "length < 4 || length > left - 4", "length < 4"),
    "quotes of an answer": ("answer.h", " + 2 * (uint64_t)a->values[i].is_quoted;", ";"),
    "header in a frame": ("request.h", " || header > length - 4) return 0;", ") return 0;"),
    "end of a text": ("texts.h", " || at > size || length > size - at) return -2;", ") return -2;"),
    "end of properties": ("properties.h", " || at > size || length > size - at) return -2;", ") return -2;"),
    "room for pairs": (
        "properties.h",
        "if (c->most_pairs - c->pairs < (block.length + 1) / LEAST_PAIR) return -1;",
        "",
    ),
    "room for texts": ("properties.h", "if (c->room - c->taken < block.length) return -1;", ""),
    "names that are compared": ("properties.h", "own == MOST_COMPARED || ", ""),
    "end of a sequence": ("texts.h", "if (left < 3 || ", "if ("),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if number == 0 else pytest.mark.slow) for number, name in enumerate(CANARIES)]
)
def test_a_check_that_is_missing_is_seen(name: str, seeds: list[Path], tmp_path: Path) -> None:
    file, check, instead = CANARIES[name]
    sources = shutil.copytree(NATIVE, tmp_path / "native")
    text = (sources / file).read_text()
    assert text.count(check) == 1, f"{file} has changed: which check is it now?"
    (sources / file).write_text(text.replace(check, instead))
    done = fuzz(compile_fuzzer(sources, tmp_path / "fuzz"), 60, seeds)
    assert done.returncode != 0, f"nothing was seen in {done.stdout}"
    assert "Sanitizer" in done.stderr or "runtime error" in done.stderr, done.stderr[-2000:]
