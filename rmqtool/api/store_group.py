"""A consumer group opened over a store: its queues and offsets, with the lock if the broker's file will be written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rmqtool.errors import NotFound
from rmqtool.times import now_ms, parse_time, parse_zone

if TYPE_CHECKING:
    from rmqtool.api.store import Store
    from rmqtool.broker.consumer.broker_side import BrokerSide
    from rmqtool.broker.consumer.group import Asked, GroupConsumer, Known
    from rmqtool.broker.consumer.progress import LocalOffsets, Progress, ReachedProgress, Start
    from rmqtool.broker.consumer.rebalance import Change
    from rmqtool.broker.consumer.windows import Delivered, SendBack
    from rmqtool.broker.offsets import ConsumerOffsets
    from rmqtool.errors import ReadFailed
    from rmqtool.files.filesystem import Closable, Status
    from rmqtool.formats.message_queue import MessageQueue
    from rmqtool.log.select import Selection
    from rmqtool.look.stored_queues import StoredQueues
    from rmqtool.store.config_files import Configs
    from rmqtool.store.listing import QueueId
    from rmqtool.store.open import Store as OpenStore


# Seconds between two looks at a store that is followed.
_PAUSE = 0.2


@dataclass
class Opened:
    """An open group."""

    asked: Asked
    stored: StoredQueues
    known: Known
    progress: Progress
    consumer: GroupConsumer
    # Queues that are not on disk although the log has messages of them.
    absent: tuple[QueueId, ...] = ()
    # Takes the messages that a program failed on, and delivers due messages while the store is followed.
    broker_side: BrokerSide | None = None
    # The state of the topics' file at the last look.
    topics_file: Status | None = None

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The ids of the members."""
        return self.asked.client_ids

    @property
    def where(self) -> str:
        """The store, to be typed."""
        return self.stored.store.root

    def wait(self) -> list[Change]:
        """Wait for new messages; return which queues moved."""
        if self.broker_side is not None:
            self.broker_side.tick()
        time.sleep(_PAUSE)
        self.stored.refresh()
        return look_for_queues(self)

    def outcome(self, delivered: Delivered) -> str:
        """Return what happens to a message that failed, in words."""
        return "the message is not consumed" if self.broker_side is None else self.broker_side.outcome(delivered)

    @property
    def queues(self) -> list[MessageQueue]:
        """All queues of the group."""
        topics = self.consumer.how.subscriptions
        return [queue for topic in topics for queue in self.known.queues_of(topic, self.asked.queue_id)]

    @property
    def unread(self) -> list[ReadFailed]:
        """The errors of the group's queues that cannot be read; the others are consumed."""
        return [
            error
            for queue, error in self.known.unread.items()
            if queue is None
            or (queue[0] in self.consumer.how.subscriptions and self.asked.queue_id in (None, queue[1]))
        ]


def parse_start(text: str | None, group: str, zone: str, *, keeps: bool) -> Start:
    """Return where the group begins; without a group that is the first message."""
    from rmqtool.broker.consumer.progress import Start
    from rmqtool.broker.consumer.subscription import ConsumeFromWhere

    if text is None and group:
        return Start()
    chosen: dict[str, Any] = {"is_asked": True, "goes_first": not keeps}
    if text in (None, "first"):
        return Start(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **chosen)
    if text == "last":
        return Start(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, **chosen)
    assert text is not None
    # A shorter number is an offset: epoch milliseconds have 13 digits.
    if text.isdecimal() and len(text) < 12:
        return Start(offset=int(text), **chosen)
    moment = parse_time(text, now=now_ms(), zone=parse_zone(zone))
    return Start(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, timestamp=moment, **chosen)


@contextmanager
def open_group_of(store: Store, asked: Asked, *, serves: bool, follows: bool) -> Iterator[Opened]:
    """Open the store and the group, with the store's lock if the broker's file will be written."""
    from rmqtool.broker.consumer.group import Known, group_progress, open_group
    from rmqtool.broker.groups import refuse_reading
    from rmqtool.engine.clock import SystemClock
    from rmqtool.look.stored_queues import StoredQueues
    from rmqtool.store.config_files import read_configs

    again = store.reopen
    with ExitStack() as stack:
        held = _hold(again, stack) if asked.keeps and not asked.broadcasting else None
        stored = StoredQueues(again)
        stack.callback(stored.close)
        configs = read_configs(stored.store)
        offsets = _offsets(asked, stored, configs.offsets, stack)
        broker_side = _back(asked, stored, offsets, held, stack) if serves and held is not None else None
        if broker_side is not None:
            configs.topics.setdefault(*broker_side.retry_topic)
        known = Known(configs.topics, stored.queues(), [*configs.offsets], stored.store.config, stored.unread)
        refuse_reading(asked.group, stored.store.config, configs.groups)
        progress = group_progress(asked, known, stored, offsets)
        try:
            consumer = open_group(
                asked, known, stored, progress, SystemClock(), *_send_back(broker_side, follows=follows)
            )
        except NotFound as error:
            # The topic or group may be in what cannot be read.
            raise known.unread.get(None, error) from error
        absent = _absent_queues(stored, configs, consumer, asked)
        opened = Opened(asked, stored, known, progress, consumer, absent, broker_side)
        if opened.unread and (asked.keeps or asked.queue_id is not None):
            raise opened.unread[0]
        _register(asked, stored.store, held, broker_side)
        yield opened


def _absent_queues(
    stored: StoredQueues, configs: Configs, consumer: GroupConsumer, asked: Asked
) -> tuple[QueueId, ...]:
    """Return the group's queues that are lost. Those that cannot be read are there."""
    from rmqtool.look.absent_queues import find_absent_queues_of
    from rmqtool.store.listing import QueueId

    unread = stored.unread
    if None in unread:
        return ()
    queues = {QueueId(*queue) for queue in stored.queues()} | {queue for queue in unread if queue is not None}
    lost = find_absent_queues_of(stored.store, configs, queues, consumer.how.subscriptions)
    return tuple(queue for queue in lost if asked.queue_id in (None, queue.queue_id))


def _register(asked: Asked, store: OpenStore, held: Closable | None, broker_side: BrokerSide | None) -> None:
    """Make the consumer known to the store, once nothing can be refused any more."""
    from rmqtool.broker.groups import register_group

    if held is not None:
        register_group(store.root, store.config, asked.group)
    if broker_side is not None:
        broker_side.save_retry_topic()


def _send_back(broker_side: BrokerSide | None, *, follows: bool) -> tuple[SendBack | None, int]:
    """Return the function that takes failed messages, and how often an ordered consumer tries one."""
    if broker_side is None:
        return None, -1
    return None if broker_side.waits_in_place and not follows else broker_side.send_back, broker_side.most_tries


def _back(
    asked: Asked,
    stored: StoredQueues,
    offsets: ConsumerOffsets | dict[str, LocalOffsets],
    held: Closable,
    stack: ExitStack,
) -> BrokerSide:
    """Return the broker's side of the group."""
    from rmqtool.broker.consumer.broker_side import BrokerSide
    from rmqtool.broker.offsets import ConsumerOffsets

    assert isinstance(offsets, ConsumerOffsets), "committed offsets are in the broker's own table"
    broker_side = BrokerSide(stored.store.root, stored.store.config, held, offsets, asked)
    stack.callback(broker_side.close)
    return broker_side


def _hold(open_store: Callable[[], OpenStore], stack: ExitStack) -> Closable:
    """Take the store's lock until the stack is closed, and return it."""
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.store.listing import lock_store

    with open_store() as opened:
        root = opened.root
    files = stack.enter_context(PosixWritableFileSystem(root))
    return stack.enter_context(lock_store(files))


def _offsets(
    asked: Asked, stored: StoredQueues, table: Mapping[tuple[str, str], Mapping[int, int]], stack: ExitStack
) -> ConsumerOffsets | dict[str, LocalOffsets]:
    """Return the broker's table, or the files of broadcasting members. Without ``commit`` it is a copy in memory."""
    from rmqtool.broker.offsets import ConsumerOffsets
    from rmqtool.engine.clock import SystemClock

    if asked.broadcasting:
        return _local_offsets(asked, stored, stack)
    if asked.keeps:
        return _kept_offsets(stored, stack)
    offsets = ConsumerOffsets(None, stored.store.version, SystemClock())
    for (topic, group), queues in table.items():
        for queue_id, offset in queues.items():
            if group == asked.group:
                offsets.commit_offset(group, topic, queue_id, offset)
    return offsets


def _kept_offsets(stored: StoredQueues, stack: ExitStack) -> ConsumerOffsets:
    """Return the broker's table for writing; refuse if that would not be safe or would have no effect."""
    from rmqtool.broker.offsets import ConsumerOffsets, progress_file
    from rmqtool.engine.clock import SystemClock
    from rmqtool.engine.load import refuse_unsupported, refuse_without_log, require_closed
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.store.config_files import config_text

    store = stored.store
    refuse_unsupported(store.listing, store.config)
    refuse_without_log(store.listing)
    require_closed(store.listing)
    files = stack.enter_context(PosixWritableFileSystem(store.root))
    lmq = store.config.enable_lmq
    return ConsumerOffsets(
        config_text(files, progress_file(enable_lmq=lmq)), store.version, SystemClock(), enable_lmq=lmq
    )


def _local_offsets(asked: Asked, stored: StoredQueues, stack: ExitStack) -> dict[str, LocalOffsets]:
    """Return the files of broadcasting members, below the home directory."""
    from rmqtool.broker.consumer.progress import LOCAL_OFFSETS, LocalOffsets, local_offsets_path
    from rmqtool.engine.clock import SystemClock
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.formats.flaws import Flaw
    from rmqtool.formats.message_queue import decode_local_offsets
    from rmqtool.store.config_files import ConfigText

    files = stack.enter_context(PosixWritableFileSystem(os.path.expanduser("~")))
    return {
        client: LocalOffsets(
            ConfigText(
                files,
                f"{LOCAL_OFFSETS}/{local_offsets_path(client, asked.group)}",
                lambda data: not isinstance(decode_local_offsets(data), Flaw),
            ),
            stored.store.version,
            SystemClock(),
        )
        for client in asked.client_ids
    }


def selection_of(opened: Opened, reached: ReachedProgress) -> Selection:
    """Return the selection that reads the group's messages from the log."""
    from glob import escape

    from rmqtool.filters.wanted import parse_patterns
    from rmqtool.log.select import Selection

    wanted = opened.asked.wanted
    return Selection(
        topics=parse_patterns(map(escape, opened.consumer.how.subscriptions)),
        queue_id=opened.asked.queue_id,
        least_offsets={(queue.topic, queue.queue_id): begin for queue, begin in reached.begins.items()},
        tags=None if wanted.is_everything or wanted.selector is not None else wanted.tags,
        where=wanted.selector,
    )


def look_for_queues(opened: Opened) -> list[Change]:
    """Assign queues, and topics that match a pattern, that were created since the last look; return the changes."""
    from rmqtool.broker.consumer.group import subscribe
    from rmqtool.formats.paths import TOPICS, config_path
    from rmqtool.store.config_files import read_configs

    store, known = opened.stored.store, opened.known
    found = store.filesystem.find_stat(config_path(TOPICS))
    topics = known.topics
    if found != opened.topics_file:
        opened.topics_file = found
        topics = {**known.topics, **read_configs(store).topics}
    opened.known = replace(known, topics=topics, queues=opened.stored.queues())
    opened.consumer.how.subscriptions.update(subscribe(opened.asked, opened.known))
    opened.consumer.set_queues(opened.queues)
    return opened.consumer.rebalance()


def change_words(clients: Sequence[str], what: str | None, changes: list[Change]) -> Iterator[str]:
    """Yield what a member did and which queues each member has now; nothing if there is only one member."""
    if len(clients) == 1:
        return
    shown = [] if what is None else [what]
    ordered = sorted((change for change in changes if change.is_taken), key=lambda change: (change[0], change[1]))
    for taker, taken in groupby(ordered, lambda change: change.client_id):
        queues = " ".join(f"{change.queue.topic}/{change.queue.queue_id}" for change in taken)
        shown.append(f"{clients.index(taker) + 1} takes {queues}")
    yield "; ".join(shown)
