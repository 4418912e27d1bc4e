"""A working store: it turns messages into records, queue entries and index entries, and keeps them over a crash.

A *put* appends the record of a message to the log. A *ticket* is a put in progress. *Dispatch* adds the record's queue
entry and its index entries. To *commit* is to write appended bytes to the file; to *flush* or *force* is to make
written bytes durable. A *slab* is many records written at once. *Upkeep* is the work that a broker does at intervals:
flushes, checkpoint, retention. *Recovery* runs after a crash and makes queues, index and checkpoint match the log
again. A *poisoned* store has had a failed write: it takes no more messages. Times are in ms, unless another unit is
named.

``store.MessageStore`` is the entry point. Everything works on an injected file system and an injected clock. Threads
are optional: an explicit call can do the work of each.
"""
