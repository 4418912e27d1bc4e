"""``check``: compares each part of a store with the others, and reports findings. Never writes.

A *case* is the store under judgement with everything known about it. A *judge* collects the reports of the log's
segments and turns their differences into findings. A finding is *explained* if known damage of the log is its cause:
then only the damage is reported. A record or an entry is *odd* if it contradicts its neighbours.
"""
