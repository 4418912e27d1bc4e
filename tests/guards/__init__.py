"""Guards over all commands at once: one story per store, nothing written by what is refused, no option swallowed."""
