"""Recovery: makes queues, index and checkpoint match the log again, and cuts a torn end of the log.

A *claim* is a record's statement of its own queue offset. A *stray* is a record whose claim no other record of its
queue confirms. A *misfit* is a valid record that cannot be at the queue offset that it claims.
"""
