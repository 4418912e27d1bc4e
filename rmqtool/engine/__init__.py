"""A working store: what producers hand over becomes records, queue units and index entries, and survives.

``store.MessageStore`` is the way in. Everything here works on an injected file system and an injected clock; threads
are optional, and whatever they do an explicit call does too.
"""
