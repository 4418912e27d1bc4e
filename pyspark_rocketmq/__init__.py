"""Lets Spark find the format ``rocketmq`` by itself: it looks through every module whose name begins like this one's.

Spark imports all of them at the first use of any Python data source, and one that fails breaks them all: so nothing
heavy is imported here, and nothing is raised.
"""

from contextlib import suppress

with suppress(ImportError):
    from rmqtool.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
