"""A file on a disk that is failing: what reads is read, what does not is known, and nothing is asked for twice."""

from __future__ import annotations

import errno
import os

import pytest

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import Extent, ReadableFile
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.salvaged import FILL, PAGE, salvaged
from rmqtool.log.walk import SegmentWalk
from tests.support.bad_sectors import spoil
from tests.support.builders import properties, record


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Return a way to open a file of these bytes of which some cannot be read."""

    def get(data: bytes, *spans: tuple[int, int]) -> ReadableFile:
        path = tmp_path / "file"
        path.write_bytes(data)
        spoil(monkeypatch, path, *spans)
        return PosixReadableFileSystem(str(tmp_path)).open_read("file")

    return get


DATA = bytes(range(1, 251)) * 200


def test_the_plain_file_still_fails(opened):
    with pytest.raises(ReadFailed):
        opened(DATA, (5000, 5001)).pread(len(DATA), 0)


@pytest.mark.parametrize("way", ["pread", "pread_into"])
def test_only_the_page_is_lost(opened, way):
    file = salvaged(opened(DATA, (5000, 5001), (20480, 24576)))
    if way == "pread":
        found = file.pread(len(DATA) + 100, 0)
    else:
        buffer = bytearray(len(DATA))
        assert file.pread_into(buffer, 0) == len(DATA)
        found = bytes(buffer)
    want = bytearray(DATA)
    want[PAGE : 2 * PAGE] = FILL * PAGE
    want[20480:24576] = FILL * PAGE
    assert found == want
    assert file.unreadable == [Extent(PAGE, PAGE), Extent(20480, PAGE)]
    assert file.find_unreadable(0, PAGE) is None
    assert file.find_unreadable(0, PAGE + 1) == Extent(PAGE, PAGE)
    assert file.find_unreadable(2 * PAGE, 20480) is None


def test_a_page_that_failed_is_not_asked_for_again(opened, monkeypatch):
    file = salvaged(opened(DATA, (5000, 5001)))
    file.pread(len(DATA), 0)
    asked = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: asked.append((at, n)) or pread(fd, n, at))
    assert file.pread(10, 4990) == FILL * 10
    assert not [one for one in asked if one[0] < 2 * PAGE and one[0] + one[1] > PAGE]


def test_other_errors_stay_errors(opened, monkeypatch):
    file = salvaged(opened(DATA))

    def refuse(*_: object) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(ReadFailed):
        file.pread(10, 0)


def test_a_record_is_damaged_though_only_its_properties_cannot_be_read(opened):
    # Its checksum is over the body, and the lengths stand before the page.
    first = record(b"b" * 3900, property_text=properties(("KEYS", "k" * 400)))
    assert len(first) > PAGE > 88 + 3900 + 12
    second = record(b"b" * 5000, physical_offset=len(first))
    third = record(b"b", physical_offset=len(first) + len(second))
    file = opened(first + second + third, (PAGE, PAGE + 10))
    places = list(SegmentWalk(file, 0).places())
    assert [(one.file_offset, one.length, getattr(one.what, "code", "")) for one in places] == [
        (0, len(first), "ST-READ"),
        (len(first), len(second), "ST-READ"),
        (len(first) + len(second), len(third), ""),
    ]
