"""A group of consumers in one process: allocation of queues, fetching, finishing, progress.

A *window* has the messages of one queue that its member has fetched and not finished. *Orderly* consumption takes one
message of a queue at a time. A *broadcasting* group gives each message to each member. A message that fails is sent
back to the broker, which delivers it again later.
"""
