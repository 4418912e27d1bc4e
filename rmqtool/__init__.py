"""Open, judge, repair and write Apache RocketMQ stores without a broker."""

__version__ = "0.1.0"
# Of the release, changed with the version: the manual bears it, so the same sources make the same pages.
__date__ = "2026-11-18"
