"""A cluster seen from outside: name servers, brokers, and what a client does with them.

A *name server* knows the *route* of a topic: which brokers have queues of it, and at which addresses they are. A broker
is a name and some addresses: that of its *master* (id 0) and those of slaves. A *connection* carries many requests at a
time; each has a number, by which its answer is found. Everything here runs on one asyncio loop; ``face`` lets code that
knows no asyncio use it.

A request that got no answer is one of two things: *not sent*, where it is certain that no byte of it left, or *lost*,
where the other side may have acted on it. Only the first is repeated without being asked to.
"""
