"""The remoting protocol: bytes ↔ values."""
