"""What developers run: the writer of the manual, the derivation of layouts. Not part of the installed package."""
