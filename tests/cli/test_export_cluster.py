"""``rmqtool export`` of a live cluster: the rows are those of its broker's files, and the next export goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.schemas import validate
from tests.support.scripted_cluster import StorePeer, in_thread
from tests.support.stores import unpack

Run = Callable[..., tuple[int, str, str]]
TOPIC = "T_normal"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("53-broker", tmp_path_factory.mktemp("exported"))


@pytest.fixture
def peer(root: Path) -> Iterator[StorePeer]:
    played = StorePeer(root)
    with in_thread(played):
        yield played


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def act(*words: object) -> tuple[int, str, str]:
        status = main(["export", *map(str, words)])
        out, err = capsys.readouterr()
        return status, out, err

    return act


def rows(target: Path) -> pa.Table:
    """Return what readers see, without the name of the broker, which files do not tell."""
    return pq.read_table(target).drop_columns("broker")


def address_of(peer: StorePeer) -> str:
    return f"rocketmq://{peer.address}"


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-t", "%RETRY%*", "-t", TOPIC),
        ("-o", "3"),
        ("-q", "1"),
        ("--body", "raw", "--columns", "topic,body,broker"),
    ],
)
def test_the_rows_are_those_of_the_files(
    root: Path, peer: StorePeer, run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    assert run(root, "--to", tmp_path / "files", "--engine", "local", *options)[0] == Exit.DONE
    status, out, err = run(address_of(peer), "--to", tmp_path / "live", "--json", *options)
    assert (status, err) == (Exit.DONE, "")
    validate("export", json.loads(out))
    assert rows(tmp_path / "files").num_rows > 10
    assert rows(tmp_path / "live").equals(rows(tmp_path / "files"))
    assert set(pq.read_table(tmp_path / "live")["broker"].to_pylist()) == {"broker-a"}


def test_times_bound_it_as_in_files(root: Path, peer: StorePeer, run: Run, tmp_path: Path) -> None:
    times = sorted(int(one["storeTimestamp"]) for one in rmqtool.scan(str(root)))
    bounds = ("-b", times[20], "-e", times[-20])
    assert run(root, "--to", tmp_path / "files", "--engine", "local", *bounds)[0] == Exit.DONE
    assert run(address_of(peer), "--to", tmp_path / "live", *bounds)[0] == Exit.DONE
    assert 0 < rows(tmp_path / "live").num_rows < len(times)
    assert rows(tmp_path / "live").equals(rows(tmp_path / "files"))


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_the_next_export_adds_what_is_new(peer: StorePeer, run: Run, tmp_path: Path, form: str) -> None:
    to = tmp_path / "out"
    words = (address_of(peer), "--to", to, "-t", TOPIC, "--since-last", "--format", form, "--json")
    later = {key: {at: peer.queues[key].pop(at) for at in sorted(offsets)[1:]} for key, offsets in _of(peer, TOPIC)}
    first = json.loads(run(*words)[1])
    for key, held in later.items():
        peer.queues[key].update(held)
    second = json.loads(run(*words)[1])
    third = json.loads(run(*words)[1])
    added = sum(map(len, later.values()))
    assert added > 10
    assert (first["rows"], second["rows"], third["export"]) == (len(later), added, None)
    if form == "parquet":
        places = [
            row["queue_id"] << 32 | row["queue_offset"]
            for row in rows(to).select(["queue_id", "queue_offset"]).to_pylist()
        ]
        assert len(places) == len(set(places)) == added + len(later)
        for manifest in (tmp_path / "out_manifest").iterdir():
            validate("export-manifest", json.loads(manifest.read_text()))


def test_messages_that_were_deleted_meanwhile_are_told(peer: StorePeer, run: Run, tmp_path: Path) -> None:
    words = (address_of(peer), "--to", tmp_path / "out", "-t", TOPIC, "-q", "0", "--since-last")
    (key,) = [key for key, _ in _of(peer, TOPIC) if key[1] == 0]
    offsets = sorted(peer.queues[key])
    held = {at: peer.queues[key].pop(at) for at in offsets[2:]}
    assert run(*words)[0] == Exit.DONE
    # The broker deletes the oldest of its messages, and the two that were exported.
    peer.queues[key].clear()
    peer.queues[key].update({at: held[at] for at in offsets[4:]})
    peer.by_place.clear()
    status, _, err = run(*words, "--on-corrupt", "fail")
    assert status == Exit.NOT_A_STORE
    status, _, err = run(*words)
    assert status == Exit.SKIPPED
    assert "queue 0 of topic T_normal at broker broker-a: messages 2 to 3 were deleted before they were exported" in err
    assert sorted(rows(tmp_path / "out")["queue_offset"].to_pylist()) == [*offsets[:2], *offsets[4:]]


def test_another_cluster_is_not_taken_for_the_same(peer: StorePeer, run: Run, tmp_path: Path) -> None:
    words = (address_of(peer), "--to", tmp_path / "out", "-t", TOPIC, "--since-last")
    assert run(*words)[0] == Exit.DONE
    peer.by_place.clear()
    status, _, err = run(*words)
    assert status == Exit.REFUSED
    assert "the log of broker-a is not the one that was exported" in err
    for _, offsets in _of(peer, TOPIC):
        for at in sorted(offsets)[1:]:
            del offsets[at]
    status, _, err = run(address_of(peer), "--to", tmp_path / "out", "-t", TOPIC, "--since-last")
    assert status == Exit.REFUSED


def test_a_target_of_both_goes_on_with_each(
    store: Callable[[str], Path], peer: StorePeer, run: Run, tmp_path: Path
) -> None:
    """Two brokers: of one there are files, the other is live."""
    files, live, to = store("49-lmq"), address_of(peer), tmp_path / "lake"
    assert run(files, "--to", to, "--engine", "local")[0] == Exit.DONE
    assert run(live, "--to", to, "--mode", "append")[0] == Exit.DONE
    before = pq.read_table(to).num_rows
    for place in ((files, "--engine", "local"), (live,), (files, "--engine", "local")):
        status, _, err = run(*place, "--to", to, "--since-last")
        assert status == Exit.DONE, err
    assert pq.read_table(to).num_rows == before > 400


def test_a_broker_of_other_topics_is_not_gone_on_with(
    store: Callable[[str], Path], peer: StorePeer, run: Run, tmp_path: Path
) -> None:
    """Then messages of these topics that were there before would be missing."""
    files, live, to = store("49-lmq"), address_of(peer), tmp_path / "lake"
    other = ("-t", "T_*")
    assert run(live, "--to", to, "-t", TOPIC)[0] == Exit.DONE
    assert run(files, "--to", to, *other, "--engine", "local", "--mode", "append")[0] == Exit.NO
    assert run(files, "--to", to, "--engine", "local", "--mode", "append")[0] == Exit.DONE
    status, _, err = run(live, "--to", to, "--since-last")
    assert (status, f"broker-a was exported to {to} with topics = {TOPIC}, not all" in err) == (Exit.USAGE, True)
    assert run(live, "--to", to, "-t", TOPIC, "--since-last")[0] == Exit.DONE
    for key in [key for key, _ in _of(peer, "T_fifo")]:
        peer.queues[key].clear()
    # The broker has nothing of this topic yet; it was asked all the same.
    assert run(live, "--to", to, "-t", "T_fifo", "--mode", "append")[0] == Exit.DONE
    status, _, err = run(live, "--to", to, "-t", "T_fifo", "--since-last")
    assert status == Exit.DONE, err


def test_files_and_clusters_do_not_go_on_from_each_other(root: Path, peer: StorePeer, run: Run, tmp_path: Path) -> None:
    live, files = tmp_path / "live", tmp_path / "files"
    assert run(address_of(peer), "--to", live)[0] == Exit.DONE
    assert run(root, "--to", files, "--engine", "local")[0] == Exit.DONE
    status, _, err = run(root, "--to", live, "--engine", "local", "--since-last")
    assert (status, "was exported from a live cluster, not from files" in err) == (Exit.REFUSED, True)
    status, _, err = run(address_of(peer), "--to", files, "--since-last")
    assert (status, "not from a live cluster" in err) == (Exit.REFUSED, True)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("-t", "Nope"), Exit.NO, "there is no topic Nope in the cluster; nothing was written"),
        (("--plan",), Exit.USAGE, "--plan lists splits of files"),
        (("--engine", "spark"), Exit.USAGE, "--engine spark has no effect on a live cluster"),
        (("--master", "local[2]"), Exit.USAGE, "--master has no effect on a live cluster"),
        (("--conf", "a=b"), Exit.USAGE, "--conf has no effect on a live cluster"),
        (("--split-size", "64m"), Exit.USAGE, "--split-size has no effect on a live cluster"),
        (("rocketmq://127.0.0.1:1",), Exit.USAGE, "is a live cluster, which is exported alone"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    peer: StorePeer, run: Run, tmp_path: Path, options: tuple[str, ...], status: Exit, said: str
) -> None:
    found, out, err = run(address_of(peer), "--to", tmp_path / "out", *options)
    assert (found, out) == (status, "")
    assert said in err
    assert not (tmp_path / "out").exists()


def test_a_file_is_closed_when_it_is_large(
    peer: StorePeer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtool.exports.live_cluster._MOST_BYTES", 1)
    monkeypatch.setattr("rmqtool.exports.parquet.MOST_ROWS", 50)
    monkeypatch.setattr("rmqtool.client.topic_stream.MOST_ROWS", 50)
    assert run(address_of(peer), "--to", tmp_path / "out")[0] == Exit.DONE
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) > 3
    whole = [place for file in files for place in pq.read_table(file)["commitlog_offset"].to_pylist()]
    assert whole == sorted(whole)
    assert len(whole) == 415


def test_a_program_exports_through_its_connection(peer: StorePeer, tmp_path: Path) -> None:
    with rmqtool.connect(address_of(peer)) as cluster:
        found = cluster.export(tmp_path / "out", topics=TOPIC)
    assert found["rows"] == rows(tmp_path / "out").num_rows > 0


def _of(peer: StorePeer, topic: str) -> list[tuple[tuple[str, int], dict[int, bytes]]]:
    return [(key, offsets) for key, offsets in sorted(peer.queues.items()) if key[0] == topic]
