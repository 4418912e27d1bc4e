"""Stores as Parquet: a plan of tasks, the files of each task, and a target that appears whole or not at all."""
