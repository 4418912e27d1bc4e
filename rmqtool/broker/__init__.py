"""The parts of a broker and of its clients that a store alone does not have.

A *group* consumes topics together; its *members* share the queues. *Progress* is the offset from which a group
continues in each queue. The *window* of a member has the messages of a queue that it fetched and has not finished. To
*send back* a message is to have the broker deliver it again later; after too many tries the message is *given up*: it
becomes a dead letter. A *service* does what a broker does by the clock.

Nothing here waits or starts a thread. Work that is due by the clock is done by the call that asks for it.
"""
