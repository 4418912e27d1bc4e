"""Values that stand at many places of a buffer, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqtool.formats import layouts
from rmqtool.formats.codes import MAGIC_BYTES, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqtool.formats.layout import DTYPE_CODES, Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Octets = NDArray[np.uint8]
    Flags = NDArray[np.bool_]


_START = layouts.RECORD_START
_MAGIC = _START.field("magic")
# What is compared at once stays in the caches.
_BLOCK = 1 << 18


def gather(octets: Octets, at: Numbers, layout: Layout[Any]) -> Numbers:
    """Return the numbers that begin at ``at``, of a layout of one field; all must lie in the buffer."""
    return _gather(octets, at, layout.fields[0].kind)


def gather_field(octets: Octets, at: Numbers, layout: Layout[Any], name: str) -> Numbers:
    """Return one field of the records of a layout that begin at ``at``."""
    field = layout.field(name)
    return _gather(octets, at + field.offset, field.kind)


def cut_out(data: bytes, begins: Numbers, ends: Numbers) -> list[bytes]:
    """Return the bytes of each span; of one that ends before it begins there are none."""
    import numpy as np

    lengths = ends - begins
    length = int(lengths[0]) if len(lengths) else 0
    if length > 0 and (lengths == length).all():
        view: Any = np.ndarray((len(data) - length + 1,), f"V{length}", data, strides=(1,))
        found: list[bytes] = view[begins].tolist()
        return found
    return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def stand_at(octets: Octets, at: Numbers, wanted: bytes) -> Flags:
    """Return at which places some bytes stand; there is room for them at each."""
    import numpy as np

    if not wanted:
        return np.ones(len(at), dtype=bool)
    view: Any = np.ndarray((len(octets) - len(wanted) + 1,), f"V{len(wanted)}", octets, strides=(1,))
    same: Flags = view[at] == np.frombuffer(wanted, view.dtype)
    return same


def find_starts(octets: Octets) -> Numbers:
    """Return where a record could begin: a message's magic number stands where its own would."""
    import numpy as np

    first = MAGIC_BYTES[0][0]  # of both
    found = [np.empty(0, np.int64)]
    for at in range(0, len(octets) - _START.size + 1, _BLOCK):
        end = min(at + _BLOCK, len(octets) - _START.size + 1)
        places = np.flatnonzero(octets[at + _MAGIC.offset : end + _MAGIC.offset] == first) + at
        magics = gather_field(octets, places, _START, _MAGIC.name)
        found.append(places[(magics == MESSAGE_MAGIC_V1) | (magics == MESSAGE_MAGIC_V2)])
    return np.concatenate(found)


def _gather(octets: Octets, at: Numbers, kind: str) -> Numbers:
    import numpy as np

    dtype = np.dtype(DTYPE_CODES[kind])
    view: Any = np.ndarray((len(octets) - dtype.itemsize + 1,), dtype, octets, strides=(1,))
    found: Numbers = view[at].astype(np.int64)
    return found
