"""The topics of a broker: which exist, with how many queues, and which a producer may create by sending.

A file that was read keeps its order when it is written again. upstream: TopicConfigManager, AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rmqtool.config import SETTINGS, StoreConfig, Version
from rmqtool.engine.clock import Clock
from rmqtool.errors import NotFound, Refused, UsageError
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config, new_bean, with_entry
from rmqtool.formats.config_shapes import DATA_VERSION, TOPIC_CONFIG
from rmqtool.formats.config_shapes import TOPICS as SHAPE
from rmqtool.formats.fastjson import Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import parse_long
from rmqtool.formats.paths import TOPICS
from rmqtool.formats.topics import (
    AUTO_CREATE_TOPIC,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    REVIVE_PREFIX,
    SYSTEM_TOPICS,
    check_topic_name,
    find_own_names,
    iter_own_topics,
)
from rmqtool.store.config_files import ConfigText

# The default of mqadmin.
DEFAULT_QUEUES = 8
# More queues than this are a typing error: each may become a directory.
_MOST_QUEUES = 65_536
_LETTERS = {"r": PERM_READ, "w": PERM_WRITE}
_TABLE = SHAPE.fields["topicConfigTable"].shape

TopicConfig = dict[str, Any]

# The attributes of a topic and their values; none: a number from -1 on. upstream: TopicAttributes, TopicMessageType
_ATTRIBUTES = {
    "queue.type": "BatchCQ SimpleCQ",
    "cleanup.policy": "DELETE COMPACTION",
    "message.type": "UNSPECIFIED NORMAL FIFO DELAY TRANSACTION PRIORITY MIXED",
    "reserve.time": "",
}
# They decide which files a topic has, so they are chosen when it is created.
_LASTING = ("queue.type", "cleanup.policy")


def _check_attribute(name: str, value: str) -> None:
    """Raise UsageError for an attribute that brokers refuse. An empty value removes one."""
    if name not in _ATTRIBUTES:
        raise UsageError(f"topics have no attribute {name}", hint=f"one of {', '.join(_ATTRIBUTES)}")
    allowed = _ATTRIBUTES[name].split()
    if value == "":
        return
    if allowed and value not in allowed:
        raise UsageError(f"{name} cannot be {value}", hint=f"one of {', '.join(allowed)}")
    number = None if allowed else parse_long(value)
    if not allowed and (number is None or number < -1):
        raise UsageError(f"{name} cannot be {value}", hint="a number from -1 on")


def parse_perm(text: str) -> int:
    """Return the permission of ``rw``, ``r``, ``w`` or ``-``, or of a broker's number."""
    if text.isdecimal() and int(text) <= (PERM_READ | PERM_WRITE | PERM_INHERIT):
        return int(text)
    if text == "-":
        return 0
    if not text or set(text) - set(_LETTERS) or len(set(text)) != len(text):
        raise UsageError(f"{text!r} is not a permission", hint="write rw, r, w or -")
    return sum(_LETTERS[letter] for letter in text)


def spell_perm(perm: int) -> str:
    """Return a permission as ``parse_perm`` reads it, with ``x`` if other topics may inherit it."""
    text = "".join(letter for letter, bit in _LETTERS.items() if perm & bit) or "-"
    return f"{text}x" if perm & PERM_INHERIT else text


class TopicConfigs:
    """The table of one broker. Nothing is written before ``save``."""

    def __init__(self, text: ConfigText, version: Version, clock: Clock) -> None:
        self._text = text
        self._version = version
        self._clock = clock
        read = text.load(_decode)
        found = read or {}
        self._is_new = read is None
        fresh = new_bean(DATA_VERSION, version.value, timestamp=clock.now())
        known = {name: value for name, value in (found.get("dataVersion") or {}).items() if name in fresh}
        self._value: dict[str, Any] = {**found, "dataVersion": fresh | known}
        # Whether the file is older than the table.
        self.is_changed = False
        self.table: dict[str, TopicConfig] = dict(found.get("topicConfigTable") or {})

    @property
    def data_version(self) -> dict[str, Any]:
        """Which state of the table this is."""
        return dict(self._value["dataVersion"])

    def find(self, topic: str) -> TopicConfig | None:
        """Return the settings of a topic."""
        return self.table.get(topic)

    def create(self, topic: str, **settings: Any) -> TopicConfig:
        """Create a topic; the name must be free."""
        refusal = check_topic_name(topic, self._version.value)
        if refusal is not None:
            raise UsageError(refusal, hint="for example: rmqtool topic STORE create Orders")
        if topic in self.table:
            raise Refused(f"topic {topic} already exists", hint=f"rmqtool topic STORE alter {topic}")
        self._refuse_own(topic)
        wanted = {"readQueueNums": DEFAULT_QUEUES, "writeQueueNums": DEFAULT_QUEUES, **settings}
        return self._set(topic, new_bean(TOPIC_CONFIG, self._version.value, topicName=topic, **self._checked(wanted)))

    def alter(self, topic: str, **settings: Any) -> TopicConfig:
        """Change settings of a topic."""
        config = self._existing(topic)
        changed = {**config, **self._checked(settings)}
        before = config.get("attributes") or {}
        attributes = {**before, **settings.get("attributes", {})}
        for name in _LASTING:
            if attributes.get(name, "") != before.get(name, ""):
                hint = f"a new topic can have another: rmqtool topic STORE create NAME --attribute {name}=VALUE"
                raise Refused(f"{name} of {topic} cannot be changed", hint=hint)
        if attributes:
            changed["attributes"] = {name: value for name, value in attributes.items() if value != ""}
        return self._set(topic, changed)

    def delete(self, topic: str) -> TopicConfig:
        """Remove a topic from the table; return its settings."""
        config = self._existing(topic)
        self._refuse_own(topic)
        del self.table[topic]
        self._touch()
        return config

    def add_own(self, config: StoreConfig) -> None:
        """Add the topics that a broker with these settings adds at its start.

        A table that was never written gets all of them. A written one has them already, except for TBW102, which comes
        and goes with its setting.
        """
        inherits_only = set() if config.cluster_topic_enable else {config.broker_cluster_name}
        inherits_only |= set() if config.broker_topic_enable else {config.broker_name}
        for own in iter_own_topics(config.version.value, config.broker_cluster_name, config.broker_name):
            is_wanted = own.needs is None or (own.needs in SETTINGS and bool(config.value(own.needs)))
            if not is_wanted or not (self._is_new or own.name == AUTO_CREATE_TOPIC):
                continue
            queues = own.queues
            if own.name == AUTO_CREATE_TOPIC:
                queues = config.default_topic_queue_nums
            elif own.name.startswith(REVIVE_PREFIX):
                queues = config.revive_queue_num
            self.ensure(own.name, queues, PERM_INHERIT if own.name in inherits_only else own.perm)
        self._is_new = False

    def auto_create(self, topic: str, default_topic: str, queues: int) -> TopicConfig | None:
        """Create a topic because a producer sends to it; return None if the broker would not.

        The topic that the producer names as a model must allow it. The new topic gets its permission, and at most as
        many queues. upstream: createTopicInSendMessageMethod
        """
        config = self.table.get(topic)
        model = self.table.get(default_topic)
        if config is not None or model is None or not model["perm"] & PERM_INHERIT:
            return config
        count = max(min(queues, int(model["writeQueueNums"])), 0)
        perm = model["perm"] & ~PERM_INHERIT
        made = {"readQueueNums": count, "writeQueueNums": count, "perm": perm}
        made |= {name: model[name] for name in ("topicSysFlag", "topicFilterType") if name in model}
        return self._set(topic, new_bean(TOPIC_CONFIG, self._version.value, topicName=topic, **made))

    def ensure(self, topic: str, queues: int, perm: int) -> None:
        """Create a topic that the broker itself needs, if it is missing.

        Upstream: createTopicInSendMessageBackMethod
        """
        if topic not in self.table:
            made = {"readQueueNums": queues, "writeQueueNums": queues, "perm": perm}
            self._set(topic, new_bean(TOPIC_CONFIG, self._version.value, topicName=topic, **made))

    def offer(self, topic: str, queues: int) -> None:
        """Let consumers read a number of queues of a topic. It is made if it is missing, and readable if it is not."""
        config = self.table.get(topic)
        if config is None:
            self.ensure(topic, queues, PERM_READ)
        elif int(config["readQueueNums"]) < queues or not int(config["perm"]) & PERM_READ:
            reads = max(int(config["readQueueNums"]), queues)
            self._set(topic, {**config, "readQueueNums": reads, "perm": int(config["perm"]) | PERM_READ})

    def encode(self) -> bytes:
        """Return the bytes of ``topics.json``."""
        value = {**self._value, "topicConfigTable": self.table}
        return encode_config(TOPICS, value, dialect_of(self._version.value))

    def save(self) -> None:
        """Write the file."""
        self._text.write(self.encode())
        self.is_changed = False

    def save_changed(self) -> bool:
        """Write the file if anything changed since; return whether it did."""
        is_changed = self.is_changed
        if is_changed:
            self.save()
        return is_changed

    def unsaved(self) -> Callable[[], None] | None:
        """Return what writes the file as it is to be now; None where nothing changed since."""
        changed, self.is_changed = self.is_changed, False
        return partial(self._text.write, self.encode()) if changed else None

    def _existing(self, topic: str) -> TopicConfig:
        config = self.table.get(topic)
        if config is None:
            raise NotFound(f"there is no topic {topic}", hint="rmqtool topic STORE list")
        return config

    def _refuse_own(self, topic: str) -> None:
        own = topic in SYSTEM_TOPICS or topic == AUTO_CREATE_TOPIC or topic in find_own_names(self.table)
        if own:
            raise Refused(f"{topic} is one of the broker's own topics", hint="rmqtool topic STORE list")

    def _checked(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings by their names, after checking that a broker would accept them."""
        for name in ("readQueueNums", "writeQueueNums"):
            count = settings.get(name)
            if count is not None and not 1 <= count <= _MOST_QUEUES:
                raise UsageError(
                    f"a topic cannot have {count} queues",
                    hint=f"use 1 to {_MOST_QUEUES}",
                )
        if settings.get("attributes") and self._version is Version.V4_9:
            raise UsageError(
                "topics of 4.9 have no attributes", hint="leave them out, or use --as 5.3 for a newer broker"
            )
        for name, value in (settings.get("attributes") or {}).items():
            _check_attribute(name, str(value))
        return {name: value for name, value in settings.items() if value not in (None, {})}

    def _set(self, topic: str, config: TopicConfig) -> TopicConfig:
        assert isinstance(_TABLE, Table), "the shape of the file says so"
        self.table = with_entry(self.table, topic, config, _TABLE)
        self._touch()
        return config

    def _touch(self) -> None:
        self.is_changed = True
        version = self._value["dataVersion"]
        version["counter"] = int(version.get("counter") or 0) + 1
        version["timestamp"] = self._clock.now()


def _decode(data: bytes) -> dict[str, Any] | Flaw:
    decoded = decode_config(TOPICS, data)
    return decoded if isinstance(decoded, Flaw) else decoded.value
