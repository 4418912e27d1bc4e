"""Read stores by Spark in a process of its own: its workers have the environment that it was started with.

python -m tests.spark.places [spark://HOST:PORT] PLACE ...

It prints for each place the rows as a digest, by whole store and by topic.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from typing import Any

from rmqtool.spark import session

_COLUMNS = ("topic", "queue_id", "queue_offset", "commitlog_offset", "store_timestamp", "keys", "body", "properties")


def _digest(spark: Any, place: str, **options: str) -> tuple[int, str, str]:
    read = spark.read.format("rocketmq").options(onCorrupt="skip", splitSize="64k", **options).load(place)
    rows = sorted((tuple(row) for row in read.select(*_COLUMNS).collect()), key=lambda row: row[3])
    return len(rows), rows[0][0] if rows else "", hashlib.sha256(repr(rows).encode()).hexdigest()


def main(places: list[str]) -> None:
    master = places.pop(0) if places[0].startswith("spark://") else "local[2]"
    with tempfile.TemporaryFile() as log:
        spark = session(master, {"spark.sql.session.timeZone": "UTC", "spark.executor.memory": "512m"}, log=log)
        for place in places:
            count, topic, digest = _digest(spark, place)
            print(json.dumps([count, digest, *_digest(spark, place, topic=topic)]), flush=True)
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
