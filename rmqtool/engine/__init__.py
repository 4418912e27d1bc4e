"""A working store: it turns messages into records, queue entries and index entries, and keeps them over a crash.

A *put* appends the record of a message to the log. *Dispatch* then adds its queue entry and its index entries. A
*flush* forces written bytes to the disk. *Upkeep* is the work that a broker does at intervals: flushes, checkpoint,
retention. *Recovery* runs after a crash and makes queues, index and checkpoint match the log again. A *ticket* is a put
that waits to be written or flushed.

``store.MessageStore`` is the entry point. Everything works on an injected file system and an injected clock. Threads
are optional: an explicit call can do the work of each.
"""
