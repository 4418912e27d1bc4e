"""A whole real broker goes on from the offsets that ``consume --commit`` wrote, and we from those that it wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from tests.conformance.oracle.runs import read_json, run_broker, settings_of

pytestmark = pytest.mark.conformance

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# Of these the run takes care itself.
OF_THE_RUN = {"brokerIP1", "brokerId"}
MORE, READ = 6, 2
# A consumer of 4.9 that comes before its broker knows it looks again after 20 seconds.
SECONDS = {"4.9.7": 26, "5.3.3": 12, "5.4.0": 12}

Place = tuple[int, int]
Queues = dict[int, int]


def shown(root: Path, topic: str, group: str, capsys: pytest.CaptureFixture[str]) -> tuple[Queues, Queues]:
    """Return the progress of a group by queue, and where the queues end."""
    capsys.readouterr()
    assert main(["info", str(root), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    queues, groups = value["topics"][topic]["queues"], value["groups"].get(group, {}).get(topic, {})
    ends = {int(queue): bounds["maxOffset"] for queue, bounds in queues.items()}
    return {int(queue): of["committed"] for queue, of in groups.items()}, ends


def consumed(root: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> list[Place]:
    capsys.readouterr()
    assert main(["consume", str(root), *words, "--commit", "--jsonl"]) == 0
    found = map(json.loads, capsys.readouterr().out.splitlines())
    return [(message["queueId"], message["queueOffset"]) for message in found]


@pytest.mark.parametrize(
    ("version", "name", "group", "topic"),
    [
        pytest.param("4.9.7", "49-broker", "g_ok", "OrderTopic", marks=pytest.mark.slow),
        pytest.param("5.3.3", "53-broker", "G_ok", "T_normal", marks=pytest.mark.slow),
        ("5.4.0", "54-broker", "G_ok", "T_normal"),
    ],
)
def test_a_real_broker_serves_groups_from_where_we_left_them_and_we_from_where_it_did(
    version: str,
    name: str,
    group: str,
    topic: str,
    writable_store: Callable[[str], Path],
    real_classes: Callable[[str], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A group of the store, that read some of what came since, and one of ours that is new and read less."""
    real_classes(version)
    root, kept, out, asked = (writable_store(name), *(tmp_path / word for word in ("kept", "out.json", "asked.json")))
    known, groups = shown(root, topic, group, capsys)[0], (group, "new")
    words = ["-t", topic, "--as", version[:3]]
    for number in range(MORE):
        assert main(["produce", str(root), f"more {number}", "-q", str(number % 2), *words]) == 0
    assert len(consumed(root, [*words, "-g", group, "-n", str(READ)], capsys)) == READ
    assert len(consumed(root, [*words, "-g", "new", "--from", "first", "-n", str(READ)], capsys)) == READ
    left, full = {one: shown(root, topic, one, capsys)[0] for one in groups}, shown(root, topic, group, capsys)[1]
    assert sum(left[group].values()) == sum(known.values()) + READ
    clients = [{"consume": {"group": one, "topic": topic, "from": "first"}} for one in groups]
    asked.write_text(json.dumps([*clients, *({"offsetsOfGroup": {"group": one, "topic": topic}} for one in groups)]))
    settings = settings_of(FIXTURES / f"{name}.truth.json.xz")
    settings = {key: value for key, value in settings.items() if key not in OF_THE_RUN}
    assert run_broker(version, root, out, SECONDS[version], clients=asked, keep=kept, settings=settings) == 0
    answers = read_json(out)["clients"]
    for one, answer in zip(groups, answers, strict=False):
        got = Counter((message["queueId"], message["queueOffset"]) for message in answer["messages"])
        due = ((queue, offset) for queue, end in full.items() for offset in range(left[one].get(queue, 0), end))
        assert got == Counter(due), one
    for answer in answers[len(groups) :]:
        assert {int(queue): of["offset"] for queue, of in answer["queues"].items()} == full
    # The broker has read everything; what comes now is all that is left for us.
    for one in groups:
        assert shown(kept, topic, one, capsys) == (full, full)
        assert consumed(kept, [*words, "-g", one], capsys) == []
    assert main(["produce", str(kept), "another", "-q", "1", *words]) == 0
    for one in groups:
        assert consumed(kept, [*words, "-g", one], capsys) == [(1, full[1])]
