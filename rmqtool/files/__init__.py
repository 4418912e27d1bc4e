"""File systems: how the bytes of a store are read and written, and what must never be done to them.

A *file system* is one of two protocols: ``ReadableFileSystem`` for looks, ``WritableFileSystem`` for writers. *posix*
is the real disk, an *overlay* keeps changes in memory over a read-only store, a *journal* records old bytes before each
change so that it can be undone, and *publish* makes a directory appear whole or not at all.
"""
