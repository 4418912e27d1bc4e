"""A model of what a 4.9, 5.3 or 5.4 broker does to a store at start, run over a copy-on-write overlay.

A *rehearsal* is one start on such an overlay; its *outcome* is the difference. A *scan* is recovery's reading of the
log, a *cut* the place where it ends. A *run* is neighbouring sound records that are processed together. A *trap* is
something that a broker does without logging it. *Reput* is upstream's name for the dispatch of the log.

Classes and methods have upstream's names, and keep its order of steps and its mistakes: 2,637 recorded starts of real
brokers hold the model to that. It shares formats and columns with the engine, but none of its rules.
"""
