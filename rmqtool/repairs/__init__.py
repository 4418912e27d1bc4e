"""Putting stores right, with a way back; and copying what is sound out of them."""
