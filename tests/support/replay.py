"""The messages of a real store, put through the engine again: the same input at the same times.

What a producer handed over is taken back from each record: a delayed message goes to the topic it was sent to, the
numbers that the broker wrote into properties are taken out. A property text that no map gives (client batches, texts
laid by hand) is handed over as a text. A client's batch leaves a trace only where it did not fit into a segment whole:
there its records are handed over together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.config import Origin, StoreConfig, Version
from rmqtool.engine.commit_log import Tail
from rmqtool.engine.dispatch import BitMaps
from rmqtool.engine.load import QueueEnd, read_state
from rmqtool.engine.message import NewMessage, property_text
from rmqtool.engine.parts import Setup, build, log_directories
from rmqtool.engine.store import MessageStore
from rmqtool.files.filesystem import make_directories
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.batches import BatchItem, encode_batch
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import BLANK_SIZE, Blank, Message
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.dispatch import has_queue_unit
from rmqtool.formats.properties import BUILT_BINS, DECODED_BINS, PieceKind, iter_pieces, split_property_crc
from rmqtool.formats.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.open import Store, open_store
from tests.support.manual_clock import ManualClock
from tests.support.stores import content_digest, truth

_WISHES = {"DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"}
_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


class Step(NamedTuple):
    """One put of the replay, and where its first record stood."""

    message: NewMessage
    store_timestamp: int
    physical_offset: int
    is_batch: bool
    source: str


def config_of(name: str, root: Path) -> StoreConfig:
    """Return the settings a fixture was written with."""
    version = {"49": Version.V4_9, "53": Version.V5_3, "54": Version.V5_4}[name[:2]]
    given = truth(name)["config"]
    texts: dict[str, str] = {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()
    }
    text = "\n".join(f"{key}={value.replace('$ROOT', str(root))}" for key, value in texts.items())
    values: dict[str, object] = {"storePathRootDir": str(root)}
    if version is not Version.V4_9:
        # The log and the index are the same, whatever the queues are.
        values |= {"storeType": "default", "rocksdbCQDoubleWriteEnable": False}
    return StoreConfig.default(version).with_broker_conf(text).with_values(values, Origin.STORE)


def iter_places(store: Store) -> Iterator[Message | tuple[int, Blank]]:
    """Walk over the records of a store, and the blanks with their places."""
    for segment in store.commit_log:
        for place in SegmentWalk(store.commit_log.open(segment), segment.base_offset).places():
            if isinstance(place.what, Message):
                yield place.what
            elif isinstance(place.what, Blank):
                yield segment.base_offset + place.file_offset, place.what


def iter_steps(store: Store, config: StoreConfig) -> Iterator[Step]:
    """Yield what has to be put."""
    places = list(iter_places(store))
    at = 0
    while at < len(places):
        place = places[at]
        if isinstance(place, Message):
            yield _step(place, config)
            at += 1
            continue
        following = places[at + 1] if at + 1 < len(places) else None
        at += 1
        if isinstance(following, Message) and following.total_size + BLANK_SIZE <= place[1].total_size:
            run = _run_of(places, at)
            yield _batch_step(run)
            at += len(run)


def _run_of(places: list[Message | tuple[int, Blank]], at: int) -> list[Message]:
    run: list[Message] = []
    for place in places[at:]:
        if not isinstance(place, Message) or (run and _shared(place) != _shared(run[0])):
            break
        run.append(place)
    return run


def _shared(message: Message) -> tuple[object, ...]:
    return (
        message.topic,
        message.queue_id,
        message.sys_flag,
        message.born_timestamp,
        message.store_timestamp,
        message.born_host_ip,
        message.born_host_port,
    )


def _outer(message: Message) -> NewMessage:
    return NewMessage(
        message.topic,
        message.raw_body,
        message.queue_id,
        b"",
        message.flag,
        message.sys_flag & ~_HOST_BITS,
        message.born_timestamp,
        (message.born_host_ip, message.born_host_port),
        (message.store_host_ip, message.store_host_port),
        message.reconsume_times,
        message.prepared_transaction_offset,
    )


def _batch_step(run: list[Message]) -> Step:
    items = [BatchItem(one.flag, one.raw_body, split_property_crc(one.raw_properties)[0]) for one in run]
    message = _outer(run[0])
    message.body = encode_batch(items)
    return Step(message, run[0].store_timestamp, run[0].physical_offset, True, "batch")


def _step(record: Message, config: StoreConfig) -> Step:
    is_4_9 = config.version is Version.V4_9
    text, _ = split_property_crc(record.raw_properties)
    # Producers may set empty values, which decoding drops.
    kinds = (PieceKind.PAIR, PieceKind.EMPTY_VALUE)
    stored = {piece.name(text): piece.value(text) for piece in iter_pieces(text) if piece.kind in kinds}
    message = _outer(record)
    source = "text"
    for bins in (BUILT_BINS,) if is_4_9 else (DECODED_BINS, BUILT_BINS):
        if property_text(stored, bins, terminated=not is_4_9) == text:
            source = f"{bins} bins" if text else "none"
            message.properties, message.property_bins = stored, bins
            break
    is_delivered = record.topic not in (SCHEDULE_TOPIC, TIMER_TOPIC) and not _WISHES.isdisjoint(stored)
    if source == "text" or is_delivered:
        # The text of a delivered message still asks for the delay, the broker that delivers it does not.
        message.property_text = text
        message.properties = {name: value for name, value in stored.items() if name not in _WISHES}
        return Step(
            message, record.store_timestamp, record.physical_offset, False, source + ", delivered" * is_delivered
        )
    sent = dict(stored)
    if (
        record.topic == SCHEDULE_TOPIC
        and {"REAL_TOPIC", "REAL_QID", "DELAY"} <= sent.keys()
        and not record.sys_flag & 4
    ):
        message.topic, message.queue_id = sent.pop("REAL_TOPIC"), int(sent.pop("REAL_QID"))
        source += ", delayed"
    if "INNER_MULTI_QUEUE_OFFSET" in sent and (config.enable_multi_dispatch if is_4_9 else config.enable_lmq):
        del sent["INNER_MULTI_QUEUE_OFFSET"]
        source += ", further queues"
    if record.sys_flag & SysFlag.INNER_BATCH and not is_4_9:
        del sent["INNER_BASE"]
        source += ", inner batch"
    message.properties = sent
    return Step(message, record.store_timestamp, record.physical_offset, False, source)


class Replayed(NamedTuple):
    """The new store's settings, what of its files was written, and how many records came from what."""

    root: Path
    written: dict[str, list[tuple[int, int]]]
    sources: Counter[str]


def replay(name: str, real: Path, target: Path, *, reopen_every: int = 0) -> Replayed:
    """Put the messages of the store ``real`` into a new one at ``target``; each must come to its old place.

    The new store is closed and opened again after every ``reopen_every`` puts.
    """
    config = config_of(name, target)
    clock = ManualClock()
    configs = truth(name).get("configFiles") or {}
    setup = Setup(
        PosixWritableFileSystem(str(target)),
        config,
        clock,
        batch_topics=_batch_topics(configs.get("topics.json") or {}),
        bit_map=_bit_map(configs.get("consumerFilter.json") or {}, config.version),
    )
    store = open_store(str(real), version=config.version, assignments=_log_assignment(config_of(name, real)))
    engine = _open_at(store, setup)
    sources: Counter[str] = Counter()
    for number, step in enumerate(iter_steps(store, config)):
        if reopen_every and number and number % reopen_every == 0:
            engine.close()
            engine = MessageStore.open(setup)
        clock.wall = step.store_timestamp
        ticket = (engine.put_batch if step.is_batch else engine.put)(step.message)
        assert ticket.is_ok, f"{ticket.status}: {step}"
        assert ticket.physical_offset == step.physical_offset, f"came to {ticket.physical_offset}: {step}"
        sources[step.source] += 1
    store.close()
    engine.close()
    return Replayed(target, _written(target, config), sources)


def _log_assignment(config: StoreConfig) -> tuple[str, ...]:
    return () if config.store_path_commit_log is None else (f"storePathCommitLog={config.store_path_commit_log}",)


def _bit_map(filters: dict[str, Any], version: Version) -> Callable[[Message], bytes]:
    """Return what a broker made of a message: of the filters those that were registered by then."""

    @cache
    def made_of(groups: frozenset[tuple[str, str]]) -> BitMaps:
        by_topic = {
            topic: {
                "groupFilterData": {
                    name: one for name, one in data["groupFilterData"].items() if (topic, name) in groups
                }
            }
            for topic, data in filters["filterDataByTopic"].items()
        }
        return BitMaps({"filterDataByTopic": by_topic}, version)

    def bit_map(message: Message) -> bytes:
        registered = {
            (topic, name)
            for topic, data in (filters.get("filterDataByTopic") or {}).items()
            for name, one in data["groupFilterData"].items()
            if one["bornTime"] <= message.store_timestamp
        }
        return made_of(frozenset(registered))(message) if registered else b""

    return bit_map


def _batch_topics(topics: dict[str, Any]) -> frozenset[str]:
    table = topics.get("topicConfigTable") or {}
    return frozenset(
        topic for topic, settings in table.items() if (settings.get("attributes") or {}).get("queue.type") == "BatchCQ"
    )


def _open_at(store: Store, setup: Setup) -> MessageStore:
    """Open an empty store whose log and queues begin where those of ``store`` do."""
    start = store.commit_log.min_offset
    if not start:
        return MessageStore.create(setup)
    firsts: dict[tuple[str, int], int] = {}
    for place in iter_places(store):
        if isinstance(place, Message) and has_queue_unit(place.sys_flag):
            firsts.setdefault((place.topic, place.queue_id), place.queue_offset)
    directories = log_directories(setup)
    for directory in directories:
        make_directories(directory.filesystem, directory.path)
    lock = setup.files.lock()
    state = read_state(setup.files, setup.config, directories)
    state.tail, state.dispatched = Tail(start, 0), start
    state.queues = {key: QueueEnd(first, -1, 0) for key, first in firsts.items()}
    engine = build(setup, state, directories)
    engine.offsets.table.update(firsts)
    return MessageStore(setup, engine, lock, state)


def _written(root: Path, config: StoreConfig) -> dict[str, list[tuple[int, int]]]:
    """Return offset and length of what the engine wrote into each file of log and queues; it left the rest zero."""
    written: dict[str, list[tuple[int, int]]] = {}
    store = open_store(str(root), version=config.version, assignments=_log_assignment(config))
    for segment in store.commit_log:
        spans = written[segment.path] = []
        for place in SegmentWalk(store.commit_log.open(segment), segment.base_offset).places():
            if isinstance(place.what, Message):
                spans.append((place.file_offset, place.length))
            elif isinstance(place.what, Blank):
                spans.append((place.file_offset, BLANK_SIZE))
    store.close()
    for path in sorted(root.glob("*consumequeue*/*/*/*")):
        data = path.read_bytes()
        end = len(data.rstrip(b"\0"))
        begin = len(data) - len(data.lstrip(b"\0"))
        # Numbers begin with zeros: what is written begins and ends with a unit.
        begin -= begin % UNIT_SIZE
        written[str(path.relative_to(root))] = [(begin, -(-end // UNIT_SIZE) * UNIT_SIZE - begin)]
    return written


class Likeness(StrEnum):
    """How two files of one name differ, where they do."""

    ONLY_REAL = "only real"
    ONLY_OURS = "only ours"
    AS_WRITTEN = "equal as far as we wrote"
    DIFFERENT = "different"


def differences(real: Path, ours: Replayed) -> dict[str, Likeness]:
    """Return the files of log, queues and index that are not the same; index files go by their number."""
    found: dict[str, Likeness] = {}
    theirs, own = _compared_files(real), _compared_files(ours.root)
    for name in sorted(theirs.keys() | own.keys()):
        if name not in own:
            found[name] = Likeness.ONLY_REAL
        elif name not in theirs:
            found[name] = Likeness.ONLY_OURS
        elif content_digest(theirs[name]) != content_digest(own[name]):
            found[name] = _likeness(theirs[name], own[name], ours.written.get(name, []))
    return found


def _likeness(real: Path, ours: Path, spans: list[tuple[int, int]]) -> Likeness:
    one, other = real.read_bytes(), ours.read_bytes()
    same = len(one) == len(other) and spans and all(one[a : a + n] == other[a : a + n] for a, n in spans)
    return Likeness.AS_WRITTEN if same else Likeness.DIFFERENT


def _compared_files(root: Path) -> dict[str, Path]:
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    named = {str(path.relative_to(root)): path for path in files}
    found = {name: path for name, path in named.items() if "commitlog" in name or "consumequeue" in name}
    index = [path for name, path in named.items() if name.startswith("index/")]
    return found | {f"index/{number}": path for number, path in enumerate(index)}
