"""The commit log as an ordered stream of messages and damage, read in ranges by one thread or several.

A *place* is a span of a file and what the tolerant walk (``walk``) sees there: a message, the blank, nothing, or a
flaw. A *right* record is one that the walk calls a message: its structure, checksums, offset and time agree. A *stale*
record is older than the one before it: a recovery cut the log there and left old bytes. A *torn* record is not whole.

A *range* is a span of one file that one task reads. All ranges but the first of a file begin at a *guess*: the task
begins with the first record it finds and reports where it really ``began`` and ``reached``; a neighbour's report proves
or refutes the guess, and a range with a wrong guess is read again. A *plan* says which files and ranges are read. A
*part* is what a range yields: wanted messages as columns. *Damage* is bytes that hold no right message; a *note* is
something a reader should know that is not damage. A *selection* says which messages are wanted. A
*leftover* is what comes after the last record of a file; it is judged when the next file is known.
"""
