"""Bytes to values and back: construct declares each layout once, everything else is derived."""
