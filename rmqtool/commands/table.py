"""The table of commands, and the words of other tools for them.

A new command is one module in this directory and one line here. A command's module is imported only when it runs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Panel(StrEnum):
    """The groups of ``rmqtool --help``, in its order."""

    LOOK = "Look"
    JUDGE = "Judge"
    FIX = "Fix"
    USE = "Use"
    NETWORK = "Network"


class Entry(NamedTuple):
    """One command: its name, ``module:function``, its panel in ``--help``, its line there."""

    name: str
    target: str
    panel: Panel
    help: str


COMMANDS: tuple[Entry, ...] = (
    Entry("info", "rmqtool.commands.info:info", Panel.LOOK, "Show what a store contains and its health."),
    Entry("cat", "rmqtool.commands.cat:cat", Panel.LOOK, "Print messages, filtered and ordered; mark damage."),
    Entry(
        "query", "rmqtool.commands.query:query", Panel.LOOK, "Find messages by id, key, offset or time; show history."
    ),
    Entry("stat", "rmqtool.commands.stat:stat", Panel.LOOK, "Count messages and bytes by topic, tag, time and more."),
    Entry("dump", "rmqtool.commands.dump:dump", Panel.LOOK, "Show every byte of a file or a record with its name."),
    Entry("browse", "rmqtool.commands.browse:browse", Panel.LOOK, "See a store in a terminal."),
    Entry("check", "rmqtool.commands.check:check", Panel.JUDGE, "Check every record and every cross-reference."),
    Entry("diff", "rmqtool.commands.diff:diff", Panel.JUDGE, "Compare two stores."),
    Entry(
        "recover",
        "rmqtool.commands.recover:recover",
        Panel.FIX,
        "Show what a broker would do at its next start.",
    ),
    Entry(
        "repair", "rmqtool.commands.repair:repair", Panel.FIX, "Plan a repair of a store; then apply it, or undo it."
    ),
    Entry("copy", "rmqtool.commands.copy:copy", Panel.FIX, "Salvage, split, merge or purge stores into a new store."),
    Entry("init", "rmqtool.commands.init:init", Panel.USE, "Create an empty store."),
    Entry("topic", "rmqtool.commands.topic:topic", Panel.USE, "List, create, alter or delete topics."),
    Entry("group", "rmqtool.commands.group:group", Panel.USE, "List, create, alter or delete consumer groups."),
    Entry("produce", "rmqtool.commands.produce:produce", Panel.USE, "Store messages as a broker would."),
    Entry("tick", "rmqtool.commands.tick:tick", Panel.USE, "Deliver due messages; with --expire, delete old segments."),
    Entry("consume", "rmqtool.commands.consume:consume", Panel.USE, "Read messages as a consumer group."),
    Entry("export", "rmqtool.commands.export:export", Panel.USE, "Export messages as Parquet, with or without Spark."),
    Entry("serve", "rmqtool.commands.serve:serve", Panel.NETWORK, "Serve a store to RocketMQ clients."),
    Entry("mirror", "rmqtool.commands.mirror:mirror", Panel.NETWORK, "Mirror a broker's log to disk as it grows."),
    Entry("demo", "rmqtool.commands.demo:demo", Panel.USE, "Take a guided tour on a new sample store."),
    Entry("man", "rmqtool.commands.man:man", Panel.USE, "Show a page of the manual."),
)

# The command here for a command of mqadmin or another tool. They are hints, not aliases: the rest of the line differs
# too.
OTHER_NAMES = {
    "queryMsgById": "query STORE ID",
    "queryMsgByUniqueKey": "query STORE UNIQ_KEY",
    "queryMsgByKey": "query STORE KEY -t TOPIC",
    "queryMsgByOffset": "query STORE TOPIC/QUEUE@OFFSET",
    "queryMsgTraceById": "query STORE ID --history",
    "decodeMessageId": "query ID",
    "printMsg": "cat STORE -t TOPIC",
    "printMsgByQueue": "cat STORE -t TOPIC -q QUEUE",
    "consumeMessage": "consume STORE -t TOPIC -g GROUP",
    "sendMessage": "produce STORE -t TOPIC BODY",
    "checkMsgSendRT": "produce STORE -t TOPIC BODY",
    "queryCq": "dump STORE/consumequeue/TOPIC/QUEUE/FILE",
    "dumpCompactionLog": "dump FILE",
    "topicList": "info STORE topics",
    "topicClusterList": "info STORE topics",
    "topicRoute": "info STORE topics",
    "topicStatus": "info STORE queues -t TOPIC",
    "updateTopic": "topic STORE create TOPIC",
    "updateTopicList": "topic STORE create TOPIC",
    "updateTopicPerm": "topic STORE alter TOPIC",
    "deleteTopic": "topic STORE delete TOPIC",
    "cleanUnusedTopic": "topic STORE delete TOPIC",
    "consumerProgress": "info STORE groups",
    "consumerStatus": "info STORE groups",
    "brokerConsumeStats": "info STORE groups",
    "getConsumerConfig": "group STORE show GROUP",
    "updateSubGroup": "group STORE alter GROUP",
    "updateSubGroupList": "group STORE create GROUP",
    "deleteSubGroup": "group STORE delete GROUP",
    "setConsumeMode": "group STORE alter GROUP",
    "brokerStatus": "info STORE",
    "clusterList": "info STORE",
    "getBrokerConfig": "info STORE config",
    "exportConfigs": "info STORE config",
    "exportMetadata": "info STORE config",
    "exportMetadataInRocksDB": "info STORE config",
    "rocksDBConfigToJson": "info STORE config",
    "getBrokerEpoch": "dump STORE/epochFileCheckpoint",
    "statsAll": "stat STORE",
    "exportMetrics": "stat STORE",
    "resetOffsetByTime": "repair STORE offsets -g GROUP -t TOPIC --to TIME",
    "skipAccumulatedMessage": "repair STORE offsets -g GROUP -t TOPIC --to max",
    "cloneGroupOffset": "repair STORE offsets -g GROUP",
    "cleanExpiredCQ": "tick STORE",
    "deleteExpiredCommitLog": "tick STORE",
    "checkRocksdbCqWriteProgress": "diff STORE STORE",
    "find": "query STORE WHAT",
    "search": "query STORE WHAT",
    "lookup": "query STORE WHAT",
    "grep": "cat STORE --body-re REGEX",
    "count": "cat STORE --count",
    "list": "info STORE topics",
    "topics": "info STORE topics",
    "queues": "info STORE queues",
    "groups": "info STORE groups",
    "lag": "info STORE groups",
    "config": "info STORE config",
    "backup": "copy STORE NEW",
    "salvage": "copy STORE NEW --salvage",
    "rebuild": "repair STORE",
    "undo": "repair STORE --undo last",
    "start": "recover STORE",
    "help": "--help",
    "version": "--version",
    "mqadmin": "--help",
    "ls": "info STORE",
    "show": "info STORE",
    "tail": "cat STORE -f",
    "fsck": "check STORE",
    "verify": "check STORE",
    "fix": "repair STORE",
    "send": "produce STORE -t TOPIC BODY",
}

# The option here for an option of other tools, by its purpose.
OTHER_OPTIONS: dict[str, tuple[str, ...]] = {
    "--format": ("--template", "--json", "--csv"),
    "--output": ("--to", "--json", "--csv"),
    "--out": ("--to", "--json", "--csv"),
    "--filter": ("--where",),
    "--where": ("--key", "--topic"),
    "--since": ("--begin",),
    "--from": ("--begin",),
    "--until": ("--end",),
    "--partition": ("--queue",),
    "--keys": ("--key",),
    "--tags": ("--tag",),
    "--head": ("--limit",),
    "--tail": ("--offset",),
}
# What to type instead, where an option of other tools asks for what a command does without it.
WITHOUT_IT = {
    ("--dry-run", "--no-apply"): ("--apply", "{command} changes nothing without --apply: leave {option} out"),
    ("--force",): ("--allow", "the plan names each step that needs permission: {path} STORE"),
}
# Options that write, or permit it. They are not suggested for a word that was meant otherwise.
WRITING_OPTIONS = frozenset(
    ("--apply", "--allow", "--yes", "--undo", "--commit", "--create", "--purge", "--expire", "--truncate", "--ack")
)
