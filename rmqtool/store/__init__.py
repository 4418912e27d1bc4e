"""What the directory of a store holds: which files there are, what each is, and where it begins and ends.

A *listing* names every file of a store without reading it. A *segment* is one file of the commit log or of a queue:
files of one size, named by the offset of their first byte. Everything here reads; only ``config_files`` writes.
"""
