"""``recover``: the predicted start equals what the real classes did, field for field."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.config import Version
from rmqtool.errors import Exit
from rmqtool.storage.store import open_store
from rmqtool.upstream.of_store import rehearse
from tests.damaged import Workshop
from tests.recorded_starts import VERSIONS, RecordedStart, base_settings, expected, recorded_starts, told
from tests.stores import left_alone, truth


def _predict(start: RecordedStart, root: Path) -> dict[str, object]:
    settings = (*base_settings(start.version, start.mutation.base), *start.settings)
    store = open_store(str(root), version=Version(VERSIONS[start.version]), assignments=settings)
    with rehearse(store) as rehearsal:
        shown = rehearsal.run().as_json()
    store.close()
    return told(shown)


def _check(starts: list[RecordedStart], directory: Path) -> None:
    workshop = Workshop(directory)
    for start in starts:
        with workshop.damaged(start.version, start.mutation, abort=start.outcome["abort"]) as root:
            wanted = expected(start, root)
            found = _predict(start, root)
            assert (start.name, {name: found[name] for name in wanted}) == (start.name, wanted)


@pytest.mark.parametrize("version", VERSIONS)
def test_starts_are_predicted(version, tmp_path):
    every = sorted(recorded_starts(version), key=lambda start: start.name)
    _check(random.Random(version).sample(every, 60), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_start_is_predicted(version, tmp_path):
    _check(list(recorded_starts(version)), tmp_path)


@pytest.mark.parametrize("name", ["49-killed", "49-killed-torn", "49-killed-broker", "53-killed"])
def test_the_recovery_of_a_killed_store_is_predicted(name, store, capsys):
    root = store(name)
    after = truth(name)["after_recovery"]
    with left_alone(root):
        status = main(["recover", str(root), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert (status, shown["mode"], shown["loads"], shown["starts"]) == (Exit.DONE, "abnormal", True, True)
    assert (shown["minPhyOffset"], shown["maxPhyOffset"]) == (after["min_phy"], after["max_phy"])
    queues = {
        topic: {queue: {key: bounds[key] for key in ("minOffset", "maxOffset")} for queue, bounds in queues.items()}
        for topic, queues in after["queues"].items()
    }
    assert {topic: shown["queues"][topic] for topic in queues} == queues


def test_the_store_is_written_as_that_broker_would_leave_it(tmp_path, capsys):
    start = next(
        start
        for start in recorded_starts("5.3.3")
        if start.outcome["id"] == "A/body-flip@last-mid/abort" and not start.settings
    )
    workshop = Workshop(tmp_path)
    with workshop.damaged("5.3.3", start.mutation, abort=True) as root:
        target = tmp_path / "left"
        conf = [word for setting in base_settings("5.3.3", "A") for word in ("--conf", setting)]
        with left_alone(root):
            status = main(["recover", str(root), "--as", "5.3", "--to", str(target), "--json", *conf])
        assert status == Exit.NO
        assert json.loads(capsys.readouterr().out)["messagesLost"] == start.outcome["valid_destroyed"]
        compared = 0
        for path, after in start.outcome["files_after"].items():
            if path.startswith(("commitlog/", "consumequeue/")):
                bytes_left = (target / path).read_bytes()
                wanted = (root / path).read_bytes() if after == "=" else None
                assert (
                    bytes_left == wanted if wanted is not None else hashlib.sha256(bytes_left).hexdigest() == after[1]
                )
                compared += 1
        assert compared > 20


def test_what_is_lost_is_told_and_the_status_says_so(tmp_path, capsys):
    start = next(s for s in recorded_starts("4.9.8") if s.outcome["id"] == "A/body-flip@2ndlast-mid/abort")
    with Workshop(tmp_path).damaged("4.9.8", start.mutation, abort=True) as root:
        status = main(["recover", str(root), "--as", "4.9"])
    out = capsys.readouterr().out
    assert status == Exit.NO
    assert "ABNORMALLY" in out
    assert "DELETE" in out
    assert f"would destroy {start.outcome['valid_destroyed']} whole messages" in out


@pytest.mark.parametrize("name", ["49-dledger", "53-rocksdb"])
def test_what_is_not_modelled_is_refused(name, store, capsys):
    assert main(["recover", str(store(name))]) == Exit.NOT_A_STORE
    assert "not modelled" in capsys.readouterr().err
