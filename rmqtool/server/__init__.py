"""A name server and a broker for clients on the network, over one store, in one process.

One loop owns every connection and every table, so there are no locks: it reads requests, calls ``broker.processors``
and writes the answers. Two threads do the slow work: forcing the disk for waiting producers, and the upkeep of the
store. The meaning of requests belongs to ``broker``; this room decides only when and to whom it answers.
"""
