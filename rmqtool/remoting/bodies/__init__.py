"""What travels in bodies, by what it is about: routes, clients, the state of brokers.

Members that this version of upstream writes and that one does not have are optional: a value is written with what it
was given.
"""
