"""The JSON Schema of every shape that scripts rely on, one file each; a number in ``$id`` is the version of the shape.

A key that is not in ``required`` may be missing. Further keys may be added to a shape without a new version; a key
that is renamed, removed, or of another type makes one.
"""
