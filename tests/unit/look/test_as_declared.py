"""``dump --as-declared``: every file of real stores by construct, against the fast decoders and the file's size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.errors import UsageError
from rmqtool.formats import layouts
from rmqtool.formats.layout import Layout
from rmqtool.formats.paths import FileKind
from rmqtool.look.as_declared import open_declared
from rmqtool.look.dump import parse_target
from rmqtool.store.open import open_store
from tests.support.stores import truth, varied_stores

FAST: dict[str, Layout[Any]] = {value.name: value for value in vars(layouts).values() if isinstance(value, Layout)}
UNDECLARED = {
    FileKind.CONFIG,
    FileKind.ABORT,
    FileKind.LOCK,
    FileKind.EPOCH,
    FileKind.BROKER_IDENTITY,
    FileKind.COMPACTION_POSITION,
    FileKind.DLEDGER_STATE,
    FileKind.ROCKSDB,
    FileKind.UNKNOWN,
}
SMALL = 1 << 17


def values(parsed) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in parsed.fields:
        parts = [(f"{field.name}_{part.name}", part.value) for part in field.fields]
        found |= dict(parts or [(field.name, field.value)])
    return found


@varied_stores
def test_every_file_is_parsed_as_the_fast_decoders_read_it(name, store):
    opened = open_store(str(store(name)))
    seen = set()
    for file in opened.listing.files:
        target = parse_target(str(Path(opened.filesystem.root) / file.path))
        if file.size > SMALL or not Path(target.path).is_file():
            continue
        if file.what.kind in UNDECLARED:
            with pytest.raises(UsageError, match="no layout is declared"), open_declared(target):
                pass
            continue
        with open_declared(target) as declared:
            at = 0
            for parsed in declared.parsed:
                assert (parsed.offset, parsed.length > 0) == (at, True), file.path
                at += parsed.length
                if fast := FAST.get(parsed.layout or ""):
                    data = declared.file.pread(fast.size, parsed.offset)
                    assert values(parsed) == fast.decode(data)._asdict(), (file.path, parsed.offset)
                seen.add(parsed.layout)
            assert at == file.size, file.path
    assert len(seen - {None}) >= 2


def test_the_log_of_a_broker_has_the_messages_that_the_fast_walk_finds(store):
    root = store("49-broker")
    fast = [
        (one["commitLogOffset"], one["topic"].encode(), one["storedBodyLength"], one["bodyCRC"], one["storeTimestamp"])
        for one in rmqtool.scan(str(root))
    ]
    found = []
    for path in sorted((root / "commitlog").iterdir()):
        with open_declared(parse_target(str(path))) as declared:
            for parsed in declared.parsed:
                if parsed.layout == "MessageRecord":
                    one = values(parsed)
                    names = ("physical_offset", "topic", "body_length", "body_crc", "store_timestamp")
                    found.append(tuple(one[part] for part in names))
    assert len(found) == len(truth("49-broker")["messages"])
    assert found == fast


def test_one_record_and_what_is_none(store):
    root = store("49-basic")
    head = rmqtool.dump(f"{root}@0", as_declared=True)
    assert (head["kind"], [part["layout"] for part in head["layouts"]]) == ("commit log", ["MessageRecord"])
    fields = {field["name"]: field for field in head["layouts"][0]["fields"]}
    assert fields["physical_offset"] == {
        "name": "physical_offset",
        "offset": 28,
        "length": 8,
        "value": 0,
        "doc": "Place of this record in the commit log",
    }
    assert [part["name"] for part in fields["born_host"]["fields"]] == ["ip", "port"]
    with pytest.raises(UsageError, match="no layout describes the bytes at 4: magic 0x"):
        rmqtool.dump(f"{root}@4", as_declared=True)


def test_construct_is_loaded_for_this_alone(store):
    root = store("49-basic")
    code = (
        "import sys\nfrom rmqtool.cli import main\n"
        f"main(['dump', {f'{root}@0'!r}, *sys.argv[1:]])\nprint('construct' in sys.modules, file=sys.stderr)\n"
    )
    for words, loaded in (([], "False"), (["--as-declared"], "True")):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert done.stderr.split()[-1] == loaded
