"""The services of a broker: delayed messages, timers, transactions, retries, pop.

An *event* tells of one message that a service handled. A service is *stuck* at a message that cannot be put now; it
tries again at its next call.
"""
