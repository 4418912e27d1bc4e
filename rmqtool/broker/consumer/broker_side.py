"""The broker's part for a consumer: it takes back failed messages, and runs the services while the consumer waits."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rmqtool.formats.topics import DLQ_PREFIX

if TYPE_CHECKING:
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.consumer.windows import Delivered
    from rmqtool.broker.offsets import ConsumerOffsets
    from rmqtool.broker.services.tick import Services
    from rmqtool.config import StoreConfig
    from rmqtool.engine.put import PutTicket
    from rmqtool.files.filesystem import Closable


class BrokerSide:
    """Opens the store when a message has to be put, under the lock that the consumer holds.

    ``save_retry_topic`` creates the retry topic of the group, as a broker does when a consumer connects.
    """

    def __init__(self, root: str, config: StoreConfig, held: Closable, offsets: ConsumerOffsets, asked: Asked) -> None:
        self._root = root
        self._config = config
        self._held = held
        self._offsets = offsets
        self._asked = asked
        self._stack = ExitStack()
        self._services: Services | None = None
        # Places of new dead letters, until ``outcome`` reports them.
        self._given_up: dict[tuple[Any, int], str] = {}
        # Failed messages that are not delivered again because the group has no retry queues, until ``outcome`` reports
        # them.
        self._dropped: set[tuple[Any, int]] = set()
        self.most_tries, self.retry_topic = self._prepare(is_saved=False)

    def save_retry_topic(self) -> None:
        """Write the retry topic to the file."""
        self._prepare(is_saved=True)

    def _prepare(self, *, is_saved: bool) -> tuple[int, tuple[str, dict[str, Any]]]:
        """Return the tries of an ordered consumer (-1: no limit), and the retry topic with its settings."""
        from rmqtool.broker.topics import TopicConfigs
        from rmqtool.engine.clock import SystemClock
        from rmqtool.files.posix_write import PosixWritableFileSystem
        from rmqtool.formats.paths import SUBSCRIPTION_GROUP, TOPICS
        from rmqtool.formats.topics import PERM_READ, PERM_WRITE, retry_topic
        from rmqtool.store.config_files import config_text, load_config

        name = retry_topic(self._asked.group)
        with PosixWritableFileSystem(self._root) as files:
            topics = TopicConfigs(config_text(files, TOPICS), self._config.version, SystemClock())
            topics.ensure(name, 1, PERM_READ | PERM_WRITE)
            if is_saved:
                topics.save_changed()
            groups = load_config(files, SUBSCRIPTION_GROUP).get("subscriptionGroupTable") or {}
        most = int(groups.get(self._asked.group, {}).get("retryMaxTimes", -1))
        return most, (name, topics.table[name])

    @property
    def waits_in_place(self) -> bool:
        """Whether a failed message holds up its queue: for an ordered consumer without a limit of tries."""
        return self._asked.orderly and self.most_tries < 0

    def outcome(self, delivered: Delivered) -> str:
        """Return what happens to a failed message, in words."""
        place = self._given_up.pop((delivered.queue, delivered.cached.queue_offset), None)
        if place is not None:
            return f"too many retries: moved to the dead-letter topic: {place}"
        if (delivered.queue, delivered.cached.queue_offset) in self._dropped:
            self._dropped.remove((delivered.queue, delivered.cached.queue_offset))
            return "it is not delivered again: retryQueueNums of the group is 0"
        return "the message is not consumed" if self.waits_in_place else "it will be delivered again"

    def send_back(self, delivered: Delivered) -> bool:
        """Have a message delivered again later, or give it up; return whether that is durable."""
        services, group = self._open(), self._asked.group
        if self._asked.orderly:
            tries = delivered.cached.reconsume_times
            back: PutTicket | None = services.retry.give_up(group, delivered.message, tries, self.most_tries)
        else:
            back = services.retry.send_back(group, delivered.message)
        if back is None:
            self._dropped.add((delivered.queue, delivered.cached.queue_offset))
        is_stored = (back is None or back.is_ok) and services.store.flush_now()
        if is_stored and back is not None and back.queue[0].startswith(DLQ_PREFIX):
            place = f"{back.queue[0]}/{back.queue[1]}@{back.queue_offset}"
            self._given_up[delivered.queue, delivered.cached.queue_offset] = place
        return is_stored

    def tick(self) -> None:
        """Run the services of the broker."""
        services = self._open()
        services.tick()
        services.store.dispatch_now()

    def close(self) -> None:
        """Save the progress of the services and close the store, if it was opened."""
        self._stack.close()

    def _open(self) -> Services:
        if self._services is None:
            from rmqtool.broker.services.tick import running
            from rmqtool.engine.parts import Setup
            from rmqtool.engine.store import MessageStore
            from rmqtool.files.posix_write import PosixWritableFileSystem

            files = self._stack.enter_context(PosixWritableFileSystem(self._root))
            store = self._stack.enter_context(MessageStore.open(Setup(files, self._config), self._held))
            self._services = self._stack.enter_context(running(store, self._offsets))
        return self._services
