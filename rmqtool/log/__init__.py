"""A commit log as an ordered stream of messages and damage.

A *range* is a span of one file that one task reads; ranges are planned before a message is read. A *part* is what a
range yields: right records as columns, or a place that is no right record. *Selection* says which messages are wanted.
A *queue entry* is the 20 bytes in a queue that point to a record.
"""
