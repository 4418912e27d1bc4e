"""Stores as Parquet: a plan of tasks, the files that each writes, and a target that appears whole or not at all."""
