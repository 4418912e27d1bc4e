"""The machine that tries to break rmqtool: `make proof`, and seeded slices of it in `make slow` and in every test run.

A *campaign* is one way of trying: power cuts on a model disk, calls that fail, kills, bad sectors, mutated stores,
commands recorded by their system calls, real power cuts. It turns a seed into one *case* or a few, judges what is left
with an independent reader (``reader``, which imports nothing of rmqtool), and returns how many *states* it tried and
what was wrong. The same seed gives the same case, so that a failure can be had again: ``python -m tests.proof NAME
--seeds N``.

The *ledger* remembers which seeds were tried, so that a run goes on where the last one ended and the table adds up;
the *record* in the repository has what was tried of earlier editions, on other machines.
*Canaries* are engines broken on purpose: a campaign that does not find them is worth nothing.
"""
