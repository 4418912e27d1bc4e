"""The directory of a store: which files it has, what each of them is, and where queues and logs begin and end.

A *listing* has every file of a store, by its path only. A *segment* is one file of the commit log or of a queue: files
of one size, each named by the offset of its first byte. The segments of one log or queue, in order, are a *segment
queue*; offsets between two segments that none of them has are a *gap*. A *stranger* is a name that no broker gives. The
*bounds* of a queue are its first and its next queue offset. A configuration file has a *copy*, its previous content in
``.bak``. Everything here reads; only ``config_files`` writes.
"""
