"""Compares the log with its queues and its index: the entries that each record requires, and where files differ.

A record is *due* one queue entry and one index entry for each of its keys; prepared and rolled-back records are due
none. A *report* is the comparison of one segment of the log; reports of segments are joined in order. A *jump* is a
queue offset that does not follow the one before it in its queue. *Apart* are the entries of a queue that differ from
the ones due. What to say about a difference is decided in ``checks``.
"""
