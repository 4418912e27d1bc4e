"""Files: what reads and writes the bytes of a store, and what it must never do to them."""
