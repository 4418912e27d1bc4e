"""Open, judge, repair and write Apache RocketMQ stores without a broker."""

__version__ = "0.1.0"
