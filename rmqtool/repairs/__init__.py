"""Repairs stores with an undo journal, and copies sound messages out of them.

A *plan* is worked out over *overlays*, copy-on-write views of the store, before a byte is written. A *step* is one file
of the plan. *Applying* a plan saves the old bytes to the undo journal first. An *area* is one directory that a repair
may change. A *risk* tells whether a step changes what can be derived from the log, what cannot, or the messages
themselves. A *bridge* is a placeholder record over damage. *Salvage* copies what is sound out of a damaged store.
"""
