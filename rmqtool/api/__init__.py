"""What the commands do, for programs: a module for each verb, and ``Store`` with the verbs as methods.

A store is given as STORE of the command line is, or as a ``Store``. Results are what ``--json`` prints, as Python's own
values; damage is among them, and only what ends a command is raised, as a ``RmqtoolError``. Messages come lazily, so a
store of any size can be read. Each command calls one function from here and shows what it returns; ``rmqtool`` exports
the verbs.
"""
