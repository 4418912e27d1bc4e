"""Bytes to values and back: construct declares each layout once, everything else is derived.

A *layout* is the fields of a structure with their offsets (``declarations``, derived into ``layouts``). A *record* is
the bytes of one message in the commit log, or the blank record that fills the end of a segment. A *queue entry* (in
code also *unit*) is 20 bytes of a consume queue that point to a record. The *tags code* is the hash of a message's
tag, stored in its queue entry. A *flaw* is a decoder's answer to bytes that are not what their place requires: a value
with a finding code, never an exception. A *segment* is one file of the log or of a queue, named after the offset of its
first byte. Nothing here opens a file.
"""
