"""Where logs and queues end, and which geometry an index has, against what the real classes answered."""

from __future__ import annotations

import pytest

from rmqtool.formats.paths import FileKind
from rmqtool.log.end import find_log_end
from rmqtool.store.index_files import Geometry, find_geometries, open_index, read_header
from rmqtool.store.open import open_store
from rmqtool.store.queues import ConsumeQueueFiles
from tests.support.stores import every_store, truth


@every_store
def test_the_log_ends_where_the_broker_says(name, store):
    told = truth(name)
    opened = open_store(str(store(name)))
    queues = [ConsumeQueueFiles(*item) for item in opened.listing.queues(FileKind.CONSUME_QUEUE).items()]
    end = find_log_end(opened.commit_log, queues, dledger=opened.is_dledger)
    # A killed store has no answer of its own: what its recovery found is where the last valid record ends.
    assert end.physical_offset == (told.get("after_recovery") or told)["max_phy"]


@every_store
def test_the_geometry_of_every_index_file_is_found_from_its_bytes(name, store):
    config = truth(name)["config"]
    wanted = Geometry(config.get("maxHashSlotNum", 5_000_000), config.get("maxIndexNum", 20_000_000))
    opened = open_store(str(store(name)))
    for file in opened.listing.of_kind(FileKind.INDEX):
        with opened.filesystem.open_read(file.path) as data:
            header = read_header(data)
            assert header is not None
            assert find_geometries(data, header) == [wanted], file.path


def test_an_empty_index_takes_its_geometry_from_the_hints(tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20240101000000000").write_bytes(bytes(40 + 4 * 10 + 20 * 5))
    opened = open_store(str(tmp_path))
    with opened.filesystem.open_read("index/20240101000000000") as data:
        assert open_index(data) is None
        found = open_index(data, [Geometry(10, 5)])
        assert found is not None
        assert found.geometry == Geometry(10, 5)


@pytest.mark.parametrize("name", ["49-basic", "53-basic", "54-basic"])
def test_a_chain_leads_to_every_message_of_a_key(name, store):
    from rmqtool.formats.index import key_hash, key_text

    told = truth(name)
    opened = open_store(str(store(name)))
    files = list(opened.listing.of_kind(FileKind.INDEX))
    places: dict[tuple[str, str], set[int]] = {}
    for message in told["messages"]:
        if message["sysFlag"] & 0xC != 0xC and message["uniqKey"]:
            places.setdefault((message["topic"], message["uniqKey"]), set()).add(message["commitLogOffset"])
    for (topic, key), wanted in sorted(places.items())[:50]:
        found = set()
        for file in files:
            with opened.filesystem.open_read(file.path) as data:
                index = open_index(data)
                assert index is not None
                hashed = key_hash(key_text(topic, key))
                found |= {step.entry.phy_offset for step in index.iter_chain(hashed) if step.entry.key_hash == hashed}
        assert wanted <= found
