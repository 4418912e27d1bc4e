"""Values that stand at many places of a buffer, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqtool.formats.layout import DTYPE_CODES, Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Octets = NDArray[np.uint8]


def gather(octets: Octets, at: Numbers, layout: Layout[Any]) -> Numbers:
    """Return the numbers that begin at ``at``, of a layout of one field; all must lie in the buffer."""
    return _gather(octets, at, layout.fields[0].kind)


def gather_field(octets: Octets, at: Numbers, layout: Layout[Any], name: str) -> Numbers:
    """Return one field of the records of a layout that begin at ``at``."""
    field = layout.field(name)
    return _gather(octets, at + field.offset, field.kind)


def _gather(octets: Octets, at: Numbers, kind: str) -> Numbers:
    import numpy as np

    dtype = np.dtype(DTYPE_CODES[kind])
    view: Any = np.ndarray((len(octets) - dtype.itemsize + 1,), dtype, octets, strides=(1,))
    found: Numbers = view[at].astype(np.int64)
    return found
