"""RocketMQ stores for Spark. All modules of the project that import pyspark are here.

import rmqtool.spark

spark = rmqtool.spark.session()
spark.read.format("rocketmq").option("topic", "Orders").load("/data/store").show()
"""

from __future__ import annotations

from rmqtool.spark.session import register, session

__all__ = ["register", "session"]
