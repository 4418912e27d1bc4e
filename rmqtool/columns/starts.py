"""Where the records of a segment begin: the walk from size to size, in lock-step.

Each hop of a walk is a miss in the caches whose address the hop before gives; one walk after the other cannot be
fast. So thousands of walks start at once, from offsets that look like records, and every step hops all of them. The
first one starts at a given record and is right; another is right exactly when the one before ended on its start.
Where that fails (a body that holds a record) the walk goes on alone until it meets a start again. The answer is
always that of the walk one by one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.compiled import walked
from rmqtool.columns.gather import Bytes, Ints, as_bytes, windows
from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, Blank, Message, Nothing, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer


class Declined(NamedTuple):
    """Where and why columns end before the last record that was asked for. Sound records are never declined.

    Everything before ``file_offset`` is decoded. The caller reads on from there with the tolerant walk (``log.walk``).
    """

    reason: str
    file_offset: int


# The fields that a walk looks at: size and magic, and the physical offset.
_START = layouts.RECORD_START
_MAGIC_AT = _START.field("magic").offset
_PHYSICAL_OFFSET_AT = layouts.MESSAGE_PREFIX_V4V4.field("physical_offset").offset
_PHYSICAL_OFFSET = layouts.LONG
_START_DTYPE = np.dtype(_START.dtype())
_PLACE_DTYPE = np.dtype(_PHYSICAL_OFFSET.dtype())[0]
_MAGICS = (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2)
# The magics in the byte order of the file: comparing them is the inner loop, and swapping bytes there would cost time.
_NATIVE_START = _START_DTYPE.newbyteorder("=")
_NATIVE_V1, _NATIVE_V2 = (np.frombuffer(_START.packer.pack(0, magic), _NATIVE_START)["magic"][0] for magic in _MAGICS)
# The two magics differ in their last byte only.
_MAGIC_START = _START.packer.pack(0, MESSAGE_MAGIC_V1)[_MAGIC_AT:-1]

# Records that are walked one by one first, to learn how long records are.
_SAMPLE = 64
# To start and end this number of walks (100 nanoseconds each) costs about as much as one step, which takes some
# microseconds for any number of walks.
_STEP_COST_IN_WALKS = 24
# Limit of the walks at once; ``_find_seeds`` reaches it at 700,000 records.
_MOST_WALKS = 4096
# For a small array this function takes half the time of the method ``all``.
_all = np.logical_and.reduce


class Starts(NamedTuple):
    """The starts of the records from a given one on, the offset where the walk ended, and the reason."""

    file_offsets: Ints
    stopped_at: int
    stopped_by: Blank | Nothing | Flaw


def record_starts(data: Buffer, file_offset: int = 0, end: int | None = None) -> Starts:
    """Return the starts of the records from ``file_offset`` on; bytes from ``end`` on are not read.

    The walk trusts magic and size of each record. It ends at the first that is not a message, or has an impossible
    size.
    """
    view = memoryview(data)[:end]
    end = len(view)
    if (found := walked(view, file_offset)) is not None:
        return _stopped(found[0], view, found[1])
    sample, at = _walk_one_by_one(view, file_offset, _SAMPLE)
    if len(sample) < _SAMPLE or at > end - _START.size:
        return _stopped(np.array(sample, np.int64), view, at)
    piece = as_bytes(view)
    longest = max(end - begin for begin, end in pairwise((*sample, at)))
    seeds = _find_seeds(piece, at, ((at - file_offset) // _SAMPLE, longest), _physical_base(view, file_offset))
    walks = _walk_in_lock_step(piece, seeds)
    runs, at = _prove(view, walks)
    return _stopped(np.concatenate((np.array(sample, np.int64), *runs)), view, at)


def _stopped(file_offsets: Ints, view: memoryview, at: int) -> Starts:
    """Return the starts, with what is at ``at``, where the walk ended."""
    what = decode_record(view, at)
    assert not isinstance(what, Message), f"the scan stopped before the message at {at}"
    return Starts(file_offsets, at, what)


def _walk_one_by_one(
    view: memoryview, at: int, most: int, meets: set[int] | frozenset[int] = frozenset()
) -> tuple[list[int], int]:
    """Return up to ``most`` starts from ``at`` on, and the offset after them; an offset in ``meets`` ends the walk."""
    starts: list[int] = []
    unpack = _START.unpack_from
    end = len(view)
    last = end - _START.size
    while len(starts) < most and at <= last and at not in meets:
        size, magic = unpack(view, at)
        if magic not in _MAGICS or size < MIN_RECORD_SIZE or size > end - at:
            break
        starts.append(at)
        at += size
    return starts, at


def _physical_base(view: memoryview, file_offset: int) -> int:
    """Return the physical offset of byte 0, as the record at ``file_offset`` gives it."""
    (physical_offset,) = _PHYSICAL_OFFSET.unpack_from(view, file_offset + _PHYSICAL_OFFSET_AT)
    return int(physical_offset) - file_offset


def _find_seeds(piece: Bytes, at: int, lengths: tuple[int, int], base: int) -> Ints:
    """Return ``at`` and, evenly spread after it, offsets that look like records: a magic, and the right place.

    ``lengths`` are the mean and the longest length of the sampled records, ``base`` is the physical offset of byte 0.
    """
    mean, longest = lengths
    left = len(piece) - at
    # More walks cost more to start, fewer take more steps: the sum is smallest where both cost the same.
    walks = min(int((left / mean * _STEP_COST_IN_WALKS) ** 0.5), _MOST_WALKS)
    stride = max(left // max(walks, 1), MIN_RECORD_SIZE)
    # Each stride is searched in a window in which a record of usual length must begin; its first likely one is the
    # seed.
    length = min(longest, 2 * mean, stride)
    last = len(piece) - max(length, MIN_RECORD_SIZE)
    regions = np.arange(at + stride, min(at + walks * stride, last + 1), stride)
    found = np.flatnonzero(windows(piece, length)[regions].view(np.uint8) == _MAGIC_START[0])
    seeds = regions[found // length] + found % length - _MAGIC_AT
    likely = seeds <= len(piece) - MIN_RECORD_SIZE
    found, seeds = found[likely], seeds[likely]
    magics = windows(piece, _START.size)[seeds].view(_NATIVE_START)["magic"]
    places = windows(piece, _PHYSICAL_OFFSET.size)[seeds + _PHYSICAL_OFFSET_AT].view(_PLACE_DTYPE)
    likely = ((magics == _NATIVE_V1) | (magics == _NATIVE_V2)) & (places == seeds + base)
    numbers, seeds = found[likely] // length, seeds[likely]
    is_first = np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]
    return np.append(np.int64(at), seeds[is_first])


class _Walks(NamedTuple):
    """The results of walks from ``seeds``: walk i found ``found[firsts[i]:firsts[i + 1]]`` and ended at ``ends[i]``."""

    seeds: Ints
    ends: Ints
    found: Ints
    firsts: Ints


def _walk_in_lock_step(piece: Bytes, seeds: Ints) -> _Walks:
    """Walk from each seed to the first record at or after the next seed, or to bytes that are not a record."""
    end = len(piece)
    last = end - _START.size
    current = seeds.copy()
    limits = np.append(seeds[1:], last + 1)
    walk = np.arange(len(seeds))
    ends = np.empty(len(seeds), np.int64)
    heads = windows(piece, _START.size)
    rows: list[tuple[npt.NDArray[np.intp], Ints]] = []
    while len(current):
        head = heads[current]
        magics = head.view(_NATIVE_START)["magic"]
        sizes = head.view(_START_DTYPE)["total_size"].astype(np.int64)
        good = (magics == _NATIVE_V1) | (magics == _NATIVE_V2)
        good &= sizes >= MIN_RECORD_SIZE
        following = current + sizes
        good &= following <= end
        if not _all(good):
            ends[walk[~good]] = current[~good]
            walk, current, following, limits = walk[good], current[good], following[good], limits[good]
        rows.append((walk, current))
        current = following
        going = current < limits
        if not _all(going):
            ends[walk[~going]] = current[~going]
            walk, current, limits = walk[going], current[going], limits[going]
    counts = np.zeros(len(seeds), np.int64)
    for walk, _ in rows:
        counts[walk] += 1
    firsts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    found = np.empty(int(firsts[-1]), np.int64)
    for step, (walk, current) in enumerate(rows):
        found[firsts[walk] + step] = current
    return _Walks(seeds, ends, found, firsts)


def _prove(view: memoryview, walks: _Walks) -> tuple[list[Ints], int]:
    """Return the starts, in runs, that one walk from the first seed finds, and the offset where that walk ends."""
    seeds, ends = walks.seeds, walks.ends
    # A walk is proven right if the one before it ended on its seed: the runs break where that is not so.
    breaks = np.append(np.flatnonzero(ends[:-1] != seeds[1:]), len(seeds) - 1)
    all_seeds = set(seeds.tolist())
    runs: list[Ints] = []
    walk = 0
    while True:
        last = int(breaks[np.searchsorted(breaks, walk)])
        runs.append(walks.found[walks.firsts[walk] : walks.firsts[last + 1]])
        alone, at = _walk_one_by_one(view, int(ends[last]), len(view), all_seeds)
        runs.append(np.array(alone, np.int64))
        # Where the single walk ends on a later seed, the walk from that seed continues it. Otherwise it is the end.
        if at not in all_seeds or at <= seeds[last]:
            return runs, at
        walk = int(np.searchsorted(seeds, at))


class Covered(NamedTuple):
    """Records as queue entries name them, in the order of the log, and the gaps that no entry names.

    Half messages, rollbacks, records that are not dispatched yet and blanks are in gaps, which need a walk.
    """

    file_offsets: Ints
    sizes: Ints
    gap_offsets: Ints
    gap_lengths: Ints


def cover_with_units(file_offsets: Ints, sizes: Ints, begin: int, end: int) -> Covered | Declined:
    """Return how the entries of all queues cover the bytes from ``begin`` to ``end``; several may name one record.

    The log is not read. Entries with the same place and size count once. Declines if two entries overlap, one is not
    inside the range, or a size is not positive.
    """
    order = np.argsort(file_offsets, kind="stable")
    starts, lengths = file_offsets[order], sizes[order].astype(np.int64)
    again = np.append(False, (starts[1:] == starts[:-1]) & (lengths[1:] == lengths[:-1]))[: len(starts)]
    starts, lengths = starts[~again], lengths[~again]
    ends = np.concatenate((np.array([begin], np.int64), starts + lengths))
    begins = np.concatenate((starts, np.array([end], np.int64)))
    steps = begins - ends
    bad = np.flatnonzero(steps < 0)
    if len(bad) or (lengths <= 0).any():
        at = int(begins[bad[0]]) if len(bad) else int(starts[np.argmax(lengths <= 0)])
        return Declined("a queue entry overlaps another or the end", at)
    gaps = steps > 0
    return Covered(starts, lengths, ends[gaps], steps[gaps])


# Bytes that ``find_starts`` compares at once: they and the mask fit the caches.
_BLOCK = 1 << 18


def find_starts(piece: Bytes) -> Ints:
    """Return every offset where a record could begin: 4 bytes later is the magic of a message."""
    found = [np.empty(0, np.int64)]
    for at in range(0, len(piece) - _START.size + 1, _BLOCK):
        end = min(at + _BLOCK, len(piece) - _START.size + 1)
        places = np.flatnonzero(piece[at + _MAGIC_AT : end + _MAGIC_AT] == _MAGIC_START[0]) + at
        magics = windows(piece, _START.size)[places].view(_NATIVE_START)["magic"]
        found.append(places[(magics == _NATIVE_V1) | (magics == _NATIVE_V2)])
    return np.concatenate(found)
