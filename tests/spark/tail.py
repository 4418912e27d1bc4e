"""Follow a store into a directory of Parquet files until somebody ends this process, or up to what is there now.

python -m tests.spark.tail STORE DIRECTORY CHECKPOINT [now]
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from tests.spark.conftest import SETTINGS


def follow(spark: Any, store: str, to: str, checkpoint: str, **options: str) -> Any:
    """Return the writer of the query, not started."""
    messages = spark.readStream.format("rocketmq").options(columns="msg_id,keys", **options).load(store)
    return messages.writeStream.format("parquet").option("path", to).option("checkpointLocation", checkpoint)


def main(store: str, to: str, checkpoint: str, until: str = "") -> None:
    """Follow the store."""
    from rmqtool.spark import session

    with tempfile.TemporaryFile() as log:
        spark = session("local[2]", SETTINGS, log=log)
        writer = follow(spark, store, to, checkpoint, maxBytesPerTrigger="64k", splitSize="16k")
        query = (writer.trigger(availableNow=True) if until else writer.trigger(processingTime="0 seconds")).start()
        print("following", flush=True)
        query.awaitTermination()
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
