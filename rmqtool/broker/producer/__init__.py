"""A producer and its broker in one process: what both do to a message before it is stored.

*To place* a message is to choose its queue. A message is *received* when the broker has added its properties. The
*turn* of a topic is the number of its next message; it decides the queue. A *wish* asks for a later delivery.
"""
