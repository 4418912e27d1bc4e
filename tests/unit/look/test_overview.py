"""``info``: what a store shows without being read through, against what the real broker answered."""

from __future__ import annotations

import os

import pytest

from rmqtool.checks.quick import judge
from rmqtool.look.overview import Overview, read_overview
from rmqtool.look.place_search import LogSearch
from rmqtool.store.open import open_store
from tests.support.stores import every_store, truth


def _overview(root) -> Overview:
    with open_store(str(root)) as store:
        found = read_overview(store)
        judge(store, found)
        return found


@every_store
def test_queues_have_the_bounds_a_broker_answers(name, store):
    told = {
        (topic, int(queue)): (bounds["minOffset"], bounds["maxOffset"])
        for topic, queues in truth(name)["queues"].items()
        for queue, bounds in queues.items()
    }
    shown = {
        (topic, int(queue)): (bounds["minOffset"], bounds["maxOffset"])
        for topic, found in _overview(store(name)).as_json()["topics"].items()
        for queue, bounds in found["queues"].items()
    }
    assert shown == told


@every_store
def test_index_files_and_checkpoint_are_those_of_the_truth(name, store):
    told = truth(name)
    shown = _overview(store(name)).as_json()
    wanted = [
        (index["name"], index["beginTimestamp"], index["endTimestamp"], index["indexCount"] - 1)
        for index in told["index_files"]
    ]
    found = [
        (index["file"].removeprefix("index/"), index["beginTimestamp"], index["endTimestamp"], index["entries"])
        for index in shown["index"]
    ]
    assert found == wanted
    names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
    assert {name: shown["checkpoint"][name] for name in names} == {name: told["checkpoint"][name] for name in names}


@every_store
def test_groups_have_the_offsets_and_the_lag_of_the_truth(name, store):
    files = truth(name).get("configFiles", {})
    tables = [files.get(file) or {} for file in ("consumerOffset.json", "lmqConsumerOffset.json")]
    told = {
        (key.split("@")[1], key.split("@")[0], int(queue)): offset
        for table in tables
        for key, queues in (table.get("offsetTable") or {}).items()
        for queue, offset in queues.items()
    }
    queues = truth(name)["queues"]
    groups = _overview(store(name)).as_json()["groups"]
    for (group, topic, queue), offset in told.items():
        place = dict(groups[group][topic][str(queue)])
        end = queues.get(topic, {}).get(str(queue), {"maxOffset": 0})["maxOffset"]
        # There is a time where the log still has an unread message; which one, test_group shows.
        oldest = place.pop("oldestUnreadTimestamp", None)
        assert oldest is None or end > offset
        assert place == {"committed": offset, "lag": end - offset}


@pytest.mark.parametrize("name", ["53-rocksdb", "54-rocksone"])
def test_offsets_kept_in_a_database_are_found(name, store):
    rows = truth(name)["rocksdb"]
    family = (
        rows["config/consumerOffsets"]["default"] if name == "53-rocksdb" else rows["config/metadata"]["consumerOffset"]
    )
    groups = _overview(store(name)).as_json()["groups"]
    assert len(family) == sum(len(topics) for topics in groups.values()) == 3


@every_store
def test_a_clean_store_shows_no_finding(name, store):
    codes = {finding["code"] for finding in _overview(store(name)).as_json()["findings"]}
    assert codes == (set() if truth(name).get("clean_shutdown", True) else {"ST-ABORT"})


def test_an_empty_log_beside_queues_asks_for_the_mount(writable_store):
    root = writable_store("49-basic")
    for segment in (root / "commitlog").iterdir():
        segment.unlink()
    findings = {finding["code"]: finding for finding in _overview(root).as_json()["findings"]}
    assert findings["ST-MOUNT"]["severity"] == "error"
    assert "mount" in findings["ST-MOUNT"]["message"]


def test_a_missing_segment_is_a_gap(writable_store):
    root = writable_store("49-basic")
    (root / "commitlog" / "00000000000000131072").unlink()
    gaps = [f for f in _overview(root).as_json()["findings"] if f["code"] == "CL-GAP"]
    assert [(gap["file"], gap["length"]) for gap in gaps] == [("commitlog/00000000000000131072", 65536)]
    assert gaps[0]["fix"].startswith("rmqtool copy ")


@pytest.mark.parametrize("name", ["49-basic", "53-broker", "54-broker"])
def test_a_last_segment_that_is_missing_is_a_gap_up_to_where_the_queues_end(name, writable_store):
    root = writable_store(name)
    last = max((root / "commitlog").iterdir())
    last.unlink()
    gaps = [f for f in _overview(root).as_json()["findings"] if f["code"] == "CL-GAP"]
    length = truth(name)["max_phy"] - int(last.name)
    assert [(gap["file"], gap["offset"], gap["length"]) for gap in gaps] == [(f"commitlog/{last.name}", 0, length)]


def sizes_and_gaps(root):
    found = _overview(root).as_json()["findings"]
    return [(f["code"], f["file"], f["length"]) for f in found if f["code"] in ("CL-SIZE", "CL-GAP")]


@pytest.mark.parametrize("first_gone", [131072, 196608], ids=["between", "at-the-end"])
def test_a_short_file_does_not_hide_the_missing_files_after_it(first_gone, writable_store):
    """The file before them was cut as well: the cut is of that file, the gap begins where the next file would."""
    root = writable_store("49-basic")
    files = sorted((root / "commitlog").iterdir())
    gone = [file for file in files if int(file.name) >= first_gone][: 2 if first_gone == 131072 else None]
    for file in gone:
        file.unlink()
    cut = files[files.index(gone[0]) - 1]
    os.truncate(cut, 40_000)
    end = int(gone[-1].name) + 65536 if gone[-1] != files[-1] else truth("49-basic")["max_phy"]
    expected = [
        ("CL-GAP", f"commitlog/{gone[0].name}", end - first_gone),
        ("CL-SIZE", f"commitlog/{cut.name}", 40_000),
    ]
    assert sorted(sizes_and_gaps(root)) == expected
    with open_store(str(root)) as store:
        search = LogSearch(store)
        list(search.iter_messages(0, store.commit_log.end_offset))
    told = {(one.code, one.file, one.length) for one in search.unread}
    if gone[-1] != files[-1]:
        assert {
            ("CL-GAP", f"commitlog/{gone[0].name}", end - first_gone),
            ("CL-SIZE", f"commitlog/{cut.name}", 25_536),
        } <= told


def test_a_single_file_of_less_than_the_stated_size_is_only_too_short(writable_store):
    root = writable_store("49-basic")
    for file in sorted((root / "commitlog").iterdir())[1:]:
        file.unlink()
    os.truncate(root / "commitlog" / f"{0:020}", 40_000)
    (root / "broker.conf").write_text("mappedFileSizeCommitLog=65536\n")
    found = sizes_and_gaps(root)
    assert ("CL-SIZE", f"commitlog/{0:020}", 40_000) in found
    length = truth("49-basic")["max_phy"] - 65536
    assert [one for one in found if one[0] == "CL-GAP"] == [("CL-GAP", f"commitlog/{65536:020}", length)]


def test_a_file_that_is_too_short_is_no_gap_beside(writable_store):
    root = writable_store("49-basic")
    os.truncate(root / "commitlog" / "00000000000000065536", 65535)
    findings = _overview(root).as_json()["findings"]
    assert [(one["code"], one["file"], one["fix"]) for one in findings] == [
        ("CL-SIZE", "commitlog/00000000000000065536", f"rmqtool repair {root}")
    ]


@pytest.mark.parametrize("name", ["49-multidir", "53-multidir"])
def test_a_log_in_several_directories_opens_with_and_without_its_settings(name, writable_store):
    root = writable_store(name)
    without = {**_overview(root).as_json(), "disk": None}
    assert without["commitLog"]["maxOffset"] == truth(name)["max_phy"]
    paths = truth(name)["config"]["storePathCommitLog"].replace("$ROOT", str(root))
    (root / "broker.conf").write_text(f"storePathRootDir={root}\nstorePathCommitLog={paths}\n")
    assert {**_overview(root).as_json(), "disk": None} == without


def test_parts_of_a_store_open_alone(store, tmp_path):
    whole = store("49-basic")
    messages = [message for message in truth("49-basic")["messages"] if 65536 <= message["commitLogOffset"] < 131072]
    end = messages[-1]["commitLogOffset"] + messages[-1]["storeSize"]
    segment = whole / "commitlog" / "00000000000000065536"
    alone = tmp_path / "segments"
    alone.mkdir()
    saved = tmp_path / "saved.bin"
    for target in (alone / segment.name, saved):
        target.write_bytes(segment.read_bytes())
    for path in (segment, alone, saved):
        log = _overview(path).as_json()["commitLog"]
        assert (log["minOffset"], log["maxOffset"]) == (65536, end), path


def test_a_directory_of_a_store_opens_the_whole_store(store):
    whole = store("49-basic")
    shown = _overview(whole).as_json()
    assert _overview(whole / "commitlog").as_json() == shown
    assert _overview(whole / "consumequeue").as_json() == shown
