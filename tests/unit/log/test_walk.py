"""The tolerant walk: equal to the truth on what real brokers wrote, and kind to what was damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.log.walk import Place, SegmentWalk, walk_dledger
from rmqtool.store.open import Store, open_store
from tests.support.damaged import VERSIONS, Workshop, mutations, outcomes, sample
from tests.support.stores import every_store, truth


def _places(store: Store) -> list[tuple[str, int, Place]]:
    found = []
    for segment in store.commit_log:
        at = 0
        for place in SegmentWalk(store.commit_log.open(segment), segment.base_offset).places():
            assert place.file_offset == at
            assert place.length > 0
            at += place.length
            found.append((segment.path, segment.base_offset, place))
        assert at == segment.size
    return found


def _messages(root: Path) -> list[int]:
    store = open_store(str(root))
    found = [place.what.physical_offset for _, _, place in _places(store) if isinstance(place.what, Message)]
    store.close()
    return found


@every_store
def test_the_walk_finds_the_messages_of_the_truth(name, store):
    told = truth(name)
    opened = open_store(str(store(name)))
    if opened.is_dledger:
        return
    places = _places(opened)
    found = [place.what.physical_offset for _, _, place in places if isinstance(place.what, Message)]
    # A record that the real check refuses is in the truth as the bytes are decoded; it is torn, not a message.
    wanted = [message["commitLogOffset"] for message in told["messages"] if "recordCheck" not in message]
    assert found == wanted
    blanks = [(base + place.file_offset, place.length) for _, base, place in places if isinstance(place.what, Blank)]
    assert blanks == [(blank["commitLogOffset"], blank["size"]) for blank in told["blanks"]]


def test_the_walk_finds_the_records_inside_dledger_entries(store):
    told = truth("49-dledger")
    opened = open_store(str(store("49-dledger")))
    found = []
    for segment in opened.commit_log:
        for place in walk_dledger(opened.commit_log.open(segment), segment.base_offset):
            if isinstance(place.record.what, Message):
                found.append((place.record.what.physical_offset, place.head.entry_index))
    wanted = [(message["commitLogOffset"], message["dledger"]["entryIndex"]) for message in told["messages"]]
    assert found == wanted


@pytest.mark.parametrize(
    ("name", "code", "offset", "length"),
    [
        # the end after a truncating recovery: 25 and 5 messages were appended, older records stand behind them
        ("49-ghost", "CL-STALE", 11839, 20929),
        ("49-recovered", "CL-STALE", 4479, 28289),
        # zeroed from the middle of a record to the end of the segment
        ("49-killed-torn", "CL-TORN", 16175, 16593),
    ],
)
def test_what_follows_the_end_is_told_apart_from_damage(name, code, offset, length, store):
    flaws = [
        (path, place.file_offset, place.length, place.what.code)
        for path, _, place in _places(open_store(str(store(name))))
        if isinstance(place.what, Flaw)
    ]
    assert flaws == [("commitlog/00000000000000196608", offset, length, code)]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


# The one case where the recorded count and ours differ: the size of a record was raised so that it reaches into the
# next. The recorded scan counts both; here the record whose size is wrong is damage, only the next one is a message.
OVERLAP = "A/recordlen-consistent-shift@last-mid"


def _check_damaged(version, keys, workshop):
    every = mutations(version)
    for key in keys:
        wanted = outcomes(version)[key]["valid_in_mutated"] - (key == OVERLAP)
        with workshop.damaged(version, every[key], abort=True) as root:
            assert (key, len(_messages(root))) == (key, wanted)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_valid_message_of_a_damaged_store_is_found(version, workshop):
    _check_damaged(version, [*sample(version, 20), OVERLAP], workshop)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_valid_message_of_every_damaged_store_is_found(version, workshop):
    _check_damaged(version, sorted(mutations(version)), workshop)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("A/recordlen-consistent-shift@last-mid", [("CL-LEN", 12733, 197)]),
        ("A/magic-blank@last-mid", [("CL-LEN", 12733, 197)]),
        ("A/storets-zero@last-first", [("CL-TIME", 0, 351)]),
        ("A/body-flip@last-mid", [("CL-CRC", 12733, 197)]),
    ],
)
def test_damage_is_named_with_its_place(key, expected, workshop):
    with workshop.damaged("4.9.8", mutations("4.9.8")[key], abort=True) as root:
        store = open_store(str(root))
        flaws = [
            (place.what.code, place.file_offset, place.length)
            for path, _, place in _places(store)
            if isinstance(place.what, Flaw) and path.endswith("393216")
        ]
    assert flaws == expected


def test_a_hole_of_a_gigabyte_costs_nothing(tmp_path):
    (tmp_path / "commitlog").mkdir()
    path = tmp_path / "commitlog" / "00000000000000000000"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    store = open_store(str(tmp_path))
    assert [(p.length, type(p.what)) for _, _, p in _places(store)] == [(1 << 30, Nothing)]
