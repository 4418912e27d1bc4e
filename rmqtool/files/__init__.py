"""File systems: how the bytes of a store are read and written, and what must never be done to them.

A *file system* is the files below one root, as one of two protocols: ``ReadableFileSystem`` and ``WritableFileSystem``.
*posix* is the real disk, an *overlay* keeps changes in memory over a store that is only read, a *journal* records the
old bytes before each change so that it can be undone, and *publish* makes a directory appear whole or not at all. An
*extent* is a span of a file that may hold data; the spans between extents are *holes* and read as zeros.
"""
