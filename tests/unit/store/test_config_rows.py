"""Rows of topics, groups and offsets that do not parse: they are not shown, and nothing overwrites them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.paths import CONSUMER_OFFSET, SUBSCRIPTION_GROUP, TOPICS
from rmqtool.formats.rocksdb_rows import ConfigRowKey, ConfigTable, encode_config_key
from rmqtool.store.config_files import config_text, load_config
from rmqtool.store.database_copy import DatabaseCopy, Row
from rmqtool.store.rocksdb import find_database, open_database

pytest.importorskip("rocksdict")


def v2_key(table: ConfigTable, *names: str, queue_id: int | None = None) -> bytes:
    return encode_config_key(ConfigRowKey(table, names, queue_id))


def odd_rows(name: str) -> dict[str, list[tuple[str, bytes, bytes]]]:
    """Return rows that do not parse, by store: directory, key, value."""
    v1 = {TOPICS: "topics", SUBSCRIPTION_GROUP: "subscriptionGroups", CONSUMER_OFFSET: "consumerOffsets"}[name]
    rows = [(f"config/{v1}", b"Odd%d@G" % number, value) for number, value in enumerate((b"{", b"[]", b"7", b"\xff"))]
    if name == CONSUMER_OFFSET:
        odd = [(v2_key(ConfigTable.CONSUMER_OFFSET, "G", "Odd", queue_id=0), b"\x00" * 7)]
    else:
        table = ConfigTable.TOPIC if name == TOPICS else ConfigTable.SUBSCRIPTION_GROUP
        odd = [(v2_key(table, "Odd"), b"\x01{"), (v2_key(table, "Odd2"), b"\x02{}"), (v2_key(table, "Odd3"), b"\x01[]")]
        odd.append((v2_key(table, "Odd4") + b"more", b"\x01{}"))
    return {"53-rocksdb": rows, "53-rocksdbv2": [("config/rdb", *row) for row in odd]}


@pytest.mark.parametrize("name", [TOPICS, SUBSCRIPTION_GROUP, CONSUMER_OFFSET])
@pytest.mark.parametrize("kind", ["53-rocksdb", "53-rocksdbv2"])
def test_rows_that_do_not_parse_are_left_alone(kind: str, name: str, writable_store: Callable[[str], Path]) -> None:
    files = PosixWritableFileSystem(str(writable_store(kind)))
    rows = odd_rows(name)[kind]
    directory = rows[0][0]
    before = load_config(files, name)
    assert before
    listed = find_database(files, directory)
    assert listed is not None
    with closing(DatabaseCopy(listed, directory, ())) as copy:
        copy.write(Row("default", key, value) for _, key, value in rows)
        copy.publish(files)
    assert load_config(files, name) == before
    config_text(files, name).write(config_text(files, name).read_copies()[0][1])
    listed = find_database(files, directory)
    assert listed is not None
    with open_database(listed, directory) as database:
        assert {key: database.get("default", key) for _, key, _ in rows} == {key: value for _, key, value in rows}
