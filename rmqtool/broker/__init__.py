"""What a broker and its clients add to a store: groups, their progress, consumption, choice and allocation of queues.

Nothing here waits or starts a thread: whatever is due by the clock is done by the call that asks for it.
"""
