"""Images of a disk with a cache: which are made of a log, and some of them judged."""

from __future__ import annotations

import random

import pytest

from tests.proof import disk_images
from tests.proof.block_log import Entry, Image, iter_images


@pytest.mark.slow
def test_some_images_of_disks_with_a_cache() -> None:
    if (reason := disk_images.missing()) is not None:
        pytest.skip(reason)
    tried = [disk_images.run(seed) for seed in range(4)]
    assert [failure for one in tried for failure in one.failures] == []
    assert sum(one.states for one in tried) == 4 * disk_images.IMAGES


def test_images_have_what_was_flushed_and_any_part_of_the_rest() -> None:
    entries = [Entry(0, b"a" * 1024, 10), Entry(0, b"", 20), Entry(0, b"b" * 1024, 30), Entry(512, b"c" * 512, 40)]
    left = {made_of(image) for image in iter_images(entries, 1, 400, random.Random("images"))}
    a, b, c = (letter * 512 for letter in (b"a", b"b", b"c"))
    assert {a + a, b + b, b + c, a + c, b + a, a + b} == left


def made_of(image: Image) -> bytes:
    disk = bytearray(1024)
    for offset, data in image.writes:
        disk[offset : offset + len(data)] = data
    return bytes(disk)
