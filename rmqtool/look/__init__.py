"""Looking at a store: overview, query, history, statistics, dump, diff. Nothing here writes.

The *bounds* of a queue are the offsets that a broker would answer for its first and its next message. A *region* is a
named span of bytes in a file, with regions inside it. A *question* is what a query looks for, and its *kind* is what
the text can be: an id, a key, an offset, a time, a tag. The *index* or a *queue* answers a question if it can be
trusted; a *scan* of the log answers the rest. A *story* is all records that a broker made of one message.
"""
