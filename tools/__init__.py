"""Tools for developers: the writer of the manual, the derivation of layouts, a recording proxy. Not in the wheel."""
