"""Compares the log with its queues and its index: the entries that each record requires, and where files differ.

A record is *due* one queue entry and one index entry for each of its keys. Prepared and rolled-back records are due no
queue entry, rolled-back ones no index entry either. A *batch* is neighbouring records of the log as columns, with
everything they are due. A *report* is the comparison of one segment of the log; reports of segments are joined in
order. A *jump* is a queue offset that does not follow the one before it in its queue. Entries that are *apart* differ
from the ones due. A *bridge* is the placeholder record that a repair writes over damage. What to say about a difference
is decided in ``checks``.
"""
