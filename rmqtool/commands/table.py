"""The table of commands, and the words that people type when they mean one of them.

A new command is one module beside this one and one line here. Nothing of a command's module is imported before it runs.
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


class Entry(NamedTuple):
    """One command: its name, ``module:function``, where ``--help`` lists it, its line there."""

    name: str
    target: str
    panel: Panel
    help: str


COMMANDS: tuple[Entry, ...] = (
    Entry("info", "rmqtool.commands.info:info", Panel.LOOK, "What a store is, and its health at a glance."),
    Entry("cat", "rmqtool.commands.cat:cat", Panel.LOOK, "Messages, filtered, in any order; damage among them."),
    Entry("query", "rmqtool.commands.query:query", Panel.LOOK, "Any id, key, offset or time; its message, its story."),
    Entry("stat", "rmqtool.commands.stat:stat", Panel.LOOK, "Who, what, when, how much."),
    Entry("dump", "rmqtool.commands.dump:dump", Panel.LOOK, "Every byte of a file or a record, named."),
    Entry(
        "check", "rmqtool.commands.check:check", Panel.JUDGE, "Prove a store sound: every byte, every cross-reference."
    ),
    Entry("diff", "rmqtool.commands.diff:diff", Panel.JUDGE, "What two stores do not have in common."),
    Entry("recover", "rmqtool.commands.recover:recover", Panel.FIX, "What a broker's next start would do and destroy."),
    Entry("repair", "rmqtool.commands.repair:repair", Panel.FIX, "Put a store right: plan, apply, undo."),
    Entry("copy", "rmqtool.commands.copy:copy", Panel.FIX, "Salvage, split, merge or purge stores, into a new one."),
    Entry("init", "rmqtool.commands.init:init", Panel.USE, "Make an empty store."),
    Entry("topic", "rmqtool.commands.topic:topic", Panel.USE, "List, create, alter or delete topics."),
    Entry("produce", "rmqtool.commands.produce:produce", Panel.USE, "Store messages, as a broker would."),
    Entry("tick", "rmqtool.commands.tick:tick", Panel.USE, "Let happen what is due now."),
    Entry("consume", "rmqtool.commands.consume:consume", Panel.USE, "Messages as a group gets them."),
    Entry("export", "rmqtool.commands.export:export", Panel.USE, "Messages as Parquet, through Spark or without."),
    Entry("demo", "rmqtool.commands.demo:demo", Panel.USE, "A guided tour on a store that it makes."),
    Entry("man", "rmqtool.commands.man:man", Panel.USE, "The manual, on any terminal."),
)

# What a word of mqadmin, or of another tool, is called here. Hints, not aliases: the rest of the line differs too.
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
    "getConsumerConfig": "info STORE groups",
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

# What an option of other tools is called here, by what it is for.
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
    "--dry-run": ("--apply",),
    "--force": ("--allow",),
}
