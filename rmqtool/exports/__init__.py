"""Stores as Parquet: a plan of tasks, the files of each task, and a target that appears whole or not at all."""

from rmqtool.columns import arrow

# Before the modules here import it: loaded this way it starts no threads in processes that must not have any.
arrow.load()
