"""``df.write.format("rocketmq")``: what only Spark shows. The rest is in tests/unit/engine/test_importing.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.stores import tree_state

pytest.importorskip("pyspark")

Unpacker = Callable[[str], Path]
KEPT = ("topic", "queue_id", "tags", "keys", "msg_id", "flag")
# Of what was stored before nothing else differs: a broker rewrites the properties of messages that wait.
PLAIN = "T_normal,T_order,T_tags"


def read(spark: Any, path: Path, **options: str) -> Any:
    return spark.read.format("rocketmq").options(**options).load(str(path))


def append(frame: Any, path: Path) -> None:
    frame.write.format("rocketmq").mode("append").save(str(path))


def content(frame: Any) -> list[Any]:
    """Return what a message keeps when it is stored anew, in the order of its queue."""
    rows = frame.orderBy("topic", "queue_id", "queue_offset").collect()
    return [(*(row[name] for name in KEPT), bytes(row["body"]), row["properties"]) for row in rows]


def contents(root: Path) -> dict[str, Any]:
    """Return every byte, mode and time of a store."""
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items()}


@pytest.mark.slow
def test_what_was_read_is_written_again(spark: Any, store: Unpacker, tmp_path: Path) -> None:
    """Into a new store, and into the same one once more: the same messages, and the check finds nothing."""
    frame = read(spark, store("54-broker"), topic=PLAIN, splitSize="64k")
    to = tmp_path / "store"
    append(frame, to)
    assert content(read(spark, to)) == content(frame)
    append(frame.filter("topic = 'T_normal'"), to)
    assert read(spark, to).count() == frame.count() + frame.filter("topic = 'T_normal'").count() > frame.count() > 100
    assert main(["check", str(to)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_failed_job_leaves_the_store_alone(spark: Any, tmp_path: Path) -> None:
    to = tmp_path / "store"
    rows = spark.range(100).selectExpr("'T' AS topic", "CAST(id AS STRING) AS body", "CAST(id AS STRING) AS keys")
    append(rows, to)
    before = contents(to)
    broken = rows.selectExpr("topic", "body", "if(keys = '77', concat(keys, unhex('01')), keys) AS keys")
    with pytest.raises(Exception, match="is not a message: a property contains a byte 1 or 2"):
        append(broken.repartition(1), to)  # with more, a task that Spark has not stopped yet may still stage
    in_use = pytest.raises(Exception, match="the store is in use")
    with PosixWritableFileSystem(str(to)) as files, files.lock(), in_use:
        append(rows, to)
    with pytest.raises(Exception, match="stores are not overwritten"):
        rows.write.format("rocketmq").mode("overwrite").save(str(to))
    assert contents(to) == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    append(rows, to)
    assert read(spark, to).count() == 200


SENTENCES = {
    "column": ("'T' AS topic, 'x' AS body, 'y' AS tag", r"a message has no column 'tag' \(did you mean tags\?\)"),
    "type": ("'T' AS topic, 'x' AS body, 'y' AS queue_id", "queue_id must be int or bigint, not string"),
    "missing": ("'T' AS topic", "a message needs a column body"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_table_that_is_none_of_messages(spark: Any, tmp_path: Path, columns: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        append(spark.sql(f"SELECT {columns}"), tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
