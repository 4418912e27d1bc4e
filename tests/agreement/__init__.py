"""Agreement: every value we read from the fixtures, compared with what the real classes read.

A comparison is a function in a module of ``comparisons/``. ``python -m tests.agreement``
runs all of them on every store.
"""
