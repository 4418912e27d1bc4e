"""The spans of an object: which bytes are requested, kept and dropped; without a server."""

from __future__ import annotations

import random

import pytest

from rmqtool.errors import RemoteError
from rmqtool.files import objects
from rmqtool.files.object_storage import parse_address
from rmqtool.files.objects import ObjectReadableFile

DATA = random.Random(3).randbytes(4 << 20)


class Far:
    """An object in memory."""

    def __init__(self) -> None:
        self.failure: OSError | None = None

    def size(self) -> int:
        return len(DATA)

    def read_at(self, length: int, at: int) -> bytes:
        if self.failure is not None:
            raise self.failure
        return DATA[at : at + length]


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Far:
    found = Far()
    monkeypatch.setattr(objects, "_open", lambda _address: found)
    return found


@pytest.mark.usefixtures("far")
def test_a_reader_can_go_on_from_the_oldest_span() -> None:
    """A reader that looked at many places, and then goes on from the first, still needs the span there."""
    with ObjectReadableFile(parse_address("s3://b/log"), "log") as file:
        for number in range(objects._MOST_SPANS):
            file.pread(10, number * (340 << 10))
        file.expect(0, len(DATA))
        assert file.pread(len(DATA), 0) == DATA


def test_a_request_that_failed_is_sent_again_by_the_next_reader(far: Far) -> None:
    with ObjectReadableFile(parse_address("s3://b/log"), "log") as file:
        far.failure = OSError("AWS Error ACCESS_DENIED (HTTP status 403)")
        with pytest.raises(RemoteError, match="refuses"):
            file.pread(10, 0)
        far.failure = None
        assert file.pread(10, 0) == DATA[:10]
