"""Replication: how a broker's log is copied to another machine while it grows, and both ends of the protocol.

A *master* sends its commit log as it is; a *slave* writes the same bytes at the same physical offsets and *reports* how
far it has them. With the classic protocol there is nothing else: no handshake, no checksum, no table of contents. In
controller mode (5.x) the two compare their *epochs* first: the numbers of the masters there have been, and where in the
log each began. A *learner* is a slave that counts for no acknowledgement.

A *mirror* is a slave that is not part of the cluster. Its directory is a store: the log is the master's, the settings,
topics, groups and offsets are copied as slaves copy them, queues and index are built from the log. Its *durable end* is
the offset before which every byte survives a power cut; only that is ever reported.

Upstream: ``HAService``, ``HAConnection``, ``DefaultHAClient``, ``AutoSwitchHAClient``, ``SlaveSynchronize``.
"""
