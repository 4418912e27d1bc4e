"""Whole buffers to numpy and Arrow columns, and back. No policy, opens nothing."""
