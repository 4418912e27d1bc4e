"""Stores as Parquet: a plan of tasks, the files that each writes, and a target that appears whole or not at all."""

from rmqtool.columns import arrow

# Before the modules here import it themselves: loaded this way it starts no threads where none are wanted.
arrow.load()
