"""Filters: which messages are meant. Tag expressions, SQL92 selectors, patterns of topics and of bodies.

An expression is parsed once and asked of one message (``expressions``) or of columns (``columns``), with equal answers.
A *selector* is a SQL92 expression over properties. It has three answers as in SQL, true, false and unknown, and a
fourth, *failed*, where upstream throws. A *dialect* is the grammar of 4.x or of 5.x.
"""
