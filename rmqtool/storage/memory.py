"""Memory of many MiB that is asked for and freed again and again."""

from __future__ import annotations

# Of what glibc is given back at once, this is the most that it learns from.
_LESSON = 31 << 20


def keep_freed_memory() -> None:
    """Have the C library keep what is freed: it takes as large pieces as were once freed for what is often needed.

    By default columns of some MiB go back to the system, whose pages then cost a fifth of all time. Nothing is touched
    here, so no memory is taken.
    """
    import numpy as np

    np.empty(_LESSON, np.uint8)
