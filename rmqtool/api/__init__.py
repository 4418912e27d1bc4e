"""The verbs of the commands for programs: a module for each verb, and ``Store`` with the verbs as methods.

A store is a path, as STORE on the command line, or a ``Store``. Results are what ``--json`` prints, as Python's own
values. Damage is part of a result; only what ends a command is raised, as a ``RmqtoolError``. Messages come lazily, so
a store of any size can be read. Each command calls one function of this room and shows what it returns. ``rmqtool``
exports the verbs.
"""
