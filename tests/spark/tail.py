"""Follow a store into a directory of Parquet files until somebody ends this process, or up to what is there now.

python -m tests.spark.tail STORE DIRECTORY CHECKPOINT [now]

The messages of a cluster, rocketmq://..., go to a store at DIRECTORY instead. STARTS, JSON, is in the environment.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from tests.spark.conftest import SETTINGS


def follow(spark: Any, store: str, to: str, checkpoint: str, **options: str) -> Any:
    """Return the writer of the query, not started."""
    messages = spark.readStream.format("rocketmq").options(columns="msg_id,keys", **options).load(store)
    return messages.writeStream.format("parquet").option("path", to).option("checkpointLocation", checkpoint)


def copy(spark: Any, cluster: str, to: str, checkpoint: str) -> Any:
    """Return the writer of a query that copies messages of a cluster, twelve at a time, not started."""
    options = {"cluster": cluster, "maxOffsetsPerTrigger": "12", "startingOffsets": os.environ["STARTS"]}
    messages = spark.readStream.format("rocketmq").options(**options).load()
    sink = messages.writeStream.format("rocketmq").option("path", to).option("topic", "Copied")
    return sink.option("checkpointLocation", checkpoint)


def main(store: str, to: str, checkpoint: str, until: str = "") -> None:
    """Follow the store."""
    from rmqtool.spark import session

    with tempfile.TemporaryFile() as log:
        spark = session("local[2]", SETTINGS, log=log)
        if store.startswith("rocketmq://"):
            writer = copy(spark, store, to, checkpoint)
        else:
            writer = follow(spark, store, to, checkpoint, maxBytesPerTrigger="64k", splitSize="16k")
        query = (writer.trigger(availableNow=True) if until else writer.trigger(processingTime="0 seconds")).start()
        print("following", flush=True)
        query.awaitTermination()
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
