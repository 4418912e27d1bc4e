"""Groups: the real classes share queues out as ours do, load what we write, and write what the golden files hold."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rmqtool.broker.consumer.progress import LocalOffsets, local_offsets_path
from rmqtool.broker.offsets import ConsumerOffsets, progress_file
from rmqtool.cli import main
from rmqtool.config import Version
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.message_queue import MessageQueue, decode_local_offsets
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.store.config_files import ConfigText, config_text
from tests.conformance.oracle.packages import cache
from tests.support.manual_clock import ManualClock
from tests.unit.broker.test_allocation import STRATEGIES
from tests.unit.formats.test_message_queue import MANY, ONE, golden

JAVA = Path(__file__).parent / "java"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "groups"
# The broker of 4.9.8 was never published, and the client of 4.9.7 forgets what it finds in the offsets file.
CLIENTS = {"4.9.8": Version.V4_9, "5.3.3": Version.V5_3, "5.4.0": Version.V5_4}
BROKERS = {"4.9.7": Version.V4_9, "5.3.3": Version.V5_3, "5.4.0": Version.V5_4}
CLIENT = "10.0.0.1@DEFAULT"

Line = tuple[object, ...]
Ask = Callable[..., str]
pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def ask(real_classes: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Return a function that has the real classes of a version answer questions."""
    compiled: dict[tuple[str, str], Path] = {}

    def get(version: str, driver: str, mode: str, questions: list[Line], argument: str = "") -> str:
        home = compiled.get((version, driver))
        if home is None:
            real_classes(version)
            home = compiled[version, driver] = tmp_path_factory.mktemp("classes")
            command = ["javac", "-nowarn", "-cp", f"{cache() / version / 'lib'}/*", "-d", str(home)]
            subprocess.run([*command, str(JAVA / f"{driver}.java")], check=True, capture_output=True)
        folder = tmp_path_factory.mktemp("asked")
        asked, answer = folder / "questions", folder / "answers"
        asked.write_text("".join("\t".join(map(str, words)) + "\n" for words in questions), encoding="utf-8")
        classes = f"{home}{os.pathsep}{cache() / version / 'lib'}/*"
        command = ["java", "-Xmx512m", f"-Duser.home={folder}", "-cp", classes, driver, mode]
        done = subprocess.run(
            [*command, str(asked), str(answer), argument], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return answer.read_text(encoding="utf-8") if answer.exists() else ""

    return get


def topologies(count: int) -> list[tuple[str, list[MessageQueue], list[str]]]:
    chance = Random(20_260_101)
    found = []
    for number in range(count):
        brokers = chance.sample(["b0", "b1", "b-2", "r1@b0", "r1@b1", "r2@b2", "r3@b9", "a@b@c", "r1@"], 3)
        queues = sorted(MessageQueue("T", broker, at) for broker in brokers for at in range(chance.randrange(1, 20)))
        names = [
            f"{chance.choice(['r1-', 'r2-', 'r9-', ''])}10.0.0.{at}@{at * 7}" for at in range(chance.randrange(1, 12))
        ]
        found.append((sorted(STRATEGIES)[number % len(STRATEGIES)], queues, sorted(names)))
    return found


@pytest.mark.parametrize("version", CLIENTS)
def test_queues_are_shared_out_as_the_real_strategies_do(version: str, ask: Ask, tmp_path: Path) -> None:
    asked = topologies(500)
    lines: list[Line] = [
        (name, " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues), " ".join(members))
        for name, queues, members in asked
    ]
    answers = iter(ask(version, "GroupAnswers", "allocate", lines).split("\n"))
    for name, queues, members in asked:
        allocated = STRATEGIES[name].allocate(queues, members)
        for member in members:
            shown = " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in allocated[member])
            assert shown == next(answers), (name, member, members)
    assert list(answers) == [""]


@pytest.mark.parametrize("version", CLIENTS)
def test_golden_local_offsets_are_what_the_real_client_writes(version: str, ask: Ask, tmp_path: Path) -> None:
    two = ONE._replace(queue_id=1)
    lines: list[Line] = [("g-many", *queue, offset) for queue, offset in MANY.items()]
    lines += [("g-one", *ONE, 1470), ("g-merge#1", *ONE, 5), ("g-merge#2", *two, 7), ("g-empty",)]
    ask(version, "GroupAnswers", "save-local", lines, str(tmp_path / "local"))
    for name in ("many", "one", "merge", "empty"):
        written = tmp_path / "local" / CLIENT / f"g-{name}" / "offsets.json"
        assert written.read_bytes() == golden(version, name), name


@pytest.mark.parametrize("version", CLIENTS)
def test_the_real_client_goes_on_with_our_local_offsets(version: str, ask: Ask, tmp_path: Path) -> None:
    files = PosixWritableFileSystem(str(tmp_path))
    path = f"local/{local_offsets_path(CLIENT, 'g')}"
    text = ConfigText(files, path, lambda data: not isinstance(decode_local_offsets(data), Flaw))
    local = LocalOffsets(text, CLIENTS[version], ManualClock())
    for queue, offset in MANY.items():
        local.offsets.update(queue, offset + 1000, increase_only=True)
    local.save()
    answer = ask(version, "GroupAnswers", "load-local", [("g", *queue) for queue in MANY], str(tmp_path / "local"))
    assert answer.split() == [str(offset + 1000) for offset in MANY.values()]


def commits_of(name: str, store: Callable[[str], Path], version: Version) -> tuple[list[Line], ConsumerOffsets]:
    """Return what a store's progress file says, in its order, and the table that was read from it."""
    enable_lmq = "lmq" in name
    text = config_text(PosixWritableFileSystem(str(store(name))), progress_file(enable_lmq=enable_lmq))
    offsets = ConsumerOffsets(text, version, ManualClock(), enable_lmq=enable_lmq)
    return [
        (topic, group, queue_id, offset)
        for topic, group in offsets.iter_subscriptions()
        for queue_id, offset in offsets.offsets_of(group, topic).items()
    ], offsets


@pytest.mark.parametrize("name", ["49-broker", "53-broker", "54-broker", "49-lmq", "53-lmq", "54-lmq"])
def test_golden_progress_is_what_the_real_broker_writes(
    name: str, store: Callable[[str], Path], ask: Ask, tmp_path: Path
) -> None:
    version = {"49": "4.9.7", "53": "5.3.3", "54": "5.4.0"}[name[:2]]
    source = "53-lmq" if "lmq" in name else name
    lines, _ = commits_of(source, store, Version.V5_3)
    # Light groups last, as the file has them; the first offset moves, then come new topics and groups.
    topic, group, queue_id, offset = lines[0]
    assert isinstance(offset, int)
    lines.append((topic, group, queue_id, offset + 1))
    lines += [("NewTopic", group, 0, 5), ("NewTopic", group, 1, 6), ("Another", "new_group", 2, 1)]
    lines += [("Another", "new_group", 0, 3), (topic, "g-second", 7, 9)]
    if "lmq" in name:
        lines += [("%LMQ%dev9", "%LMQ%group-1", 0, 4), ("%LMQ%x", "%LMQ%y", 0, 1)]
    manager = "LmqConsumerOffsetManager" if "lmq" in name else "ConsumerOffsetManager"
    written = ask(version, "OffsetAnswers", "save", lines, manager)
    assert written.encode() == (GOLDEN / f"continued-{name}.json").read_bytes()


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("4.9.7", "49-broker"),
        ("5.3.3", "53-broker"),
        ("5.4.0", "54-broker"),
        ("5.4.0", "53-lmq"),
        ("4.9.7", "53-broker"),
    ],
)
def test_the_real_broker_goes_on_with_our_progress(
    version: str, name: str, store: Callable[[str], Path], ask: Ask, tmp_path: Path
) -> None:
    lines, offsets = commits_of(name, store, BROKERS[version])
    for topic, group, queue_id, offset in [*lines, ("New", "g-new", 3, 0)]:
        assert isinstance(queue_id, int)
        assert isinstance(offset, int)
        offsets.commit_offset(str(group), str(topic), queue_id, offset + 1)
    (tmp_path / "ours.json").write_bytes(offsets.encode())
    manager = "LmqConsumerOffsetManager" if "lmq" in name else "ConsumerOffsetManager"
    loaded = ask(version, "OffsetAnswers", "load", [(tmp_path / "ours.json",)], manager).splitlines()
    expected = {
        f"{topic}@{group}\t{queue_id}\t{offset}"
        for topic, group in offsets.iter_subscriptions()
        if not group.startswith(LMQ_PREFIX)
        for queue_id, offset in offsets.offsets_of(group, topic).items()
    }
    assert set(loaded) == expected
    assert "New@g-new\t3\t1" in loaded


@pytest.mark.parametrize(
    ("version", "name", "group", "topic"),
    [
        ("4.9.7", "49-broker", "g_ok", "OrderTopic"),
        ("5.3.3", "53-broker", "G_ok", "T_normal"),
        ("5.4.0", "54-broker", "G_ok", "T_normal"),
    ],
)
def test_the_real_broker_goes_on_where_consume_stopped(
    version: str, name: str, group: str, topic: str, writable_store: Callable[[str], Path], ask: Ask
) -> None:
    """A group of the store goes on, a new one begins; the real manager has both, and everybody else as before."""
    root = writable_store(name)
    text = config_text(PosixWritableFileSystem(str(root)), progress_file(enable_lmq=False))
    before = ConsumerOffsets(text, BROKERS[version], ManualClock())
    known = {
        f"{of}@{by}\t{queue_id}\t{offset}"
        for of, by in before.iter_subscriptions()
        for queue_id, offset in before.offsets_of(by, of).items()
    }
    ends = before.offsets_of(group, topic)
    words = [str(root), "-t", topic, "--as", version[:3], "--template", "{topic}\n"]
    assert main(["produce", *words[:1], "one more", "-q", "2", *words[1:5]]) == 0
    assert main(["consume", *words, "-g", group, "--commit"]) == 0
    assert main(["consume", *words, "-g", "new", "--from", "first", "--commit"]) == 0
    expected = {queue_id: offset + (queue_id == 2) for queue_id, offset in ends.items()}
    written = root / "config/consumerOffset.json"
    loaded = set(ask(version, "OffsetAnswers", "load", [(written,)], "ConsumerOffsetManager").splitlines())
    for name_of_group in (group, "new"):
        shown = {f"{topic}@{name_of_group}\t{queue_id}\t{offset}" for queue_id, offset in expected.items()}
        assert shown <= loaded
    assert known - {f"{topic}@{group}\t2\t{ends[2]}"} <= loaded
