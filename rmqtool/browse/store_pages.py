"""Pages about the whole store: overview, groups, delayed messages, transactions, configuration, databases, damage."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from functools import partial
from itertools import islice
from shlex import quote
from typing import Any

from rmqtool.api.dump import open_dump
from rmqtool.api.info import glance
from rmqtool.browse.damage_pages import explained, to_finding
from rmqtool.browse.explorer import Explorer
from rmqtool.browse.message_pages import moment, preview
from rmqtool.browse.page import Column, GrowingPage, ListPage, Page, Row, line, remark
from rmqtool.errors import OptionalMissing
from rmqtool.formats import checkpoints, layouts, paths, timer, topics
from rmqtool.formats.java import parse_long
from rmqtool.formats.message_json import message_json
from rmqtool.formats.paths import FileKind
from rmqtool.formats.property_names import REAL_TOPIC, TIMER_DELIVER_MS
from rmqtool.look.history import HALF_TOPICS, decided_by, decided_offset
from rmqtool.look.place_search import iter_messages_since
from rmqtool.look.stat_reports import Delay, iter_delays
from rmqtool.look.unit_regions import iter_runs
from rmqtool.render.text import count, counted, neutral, size, timestamp

_ABOUT = (Column("", 12), Column("", 0))
_GROUPS = (
    Column("group", 18),
    Column("topic/queue", 20),
    Column("committed", 10, is_number=True),
    Column("end", 10, is_number=True),
    Column("lag"),
)
_DELAYED = (Column("due", 19), Column("by", 8), Column("for", 18), Column("keys", 12), Column("body"))
_HALVES = (Column("stored", 14), Column("state", 9), Column("for", 18), Column("keys", 12), Column("body"))
_ROWS = (Column("family", 10), Column("key", 28), Column("value"))
_MOST_ROWS = 10_000
_RING = 40


def first_page(explorer: Explorer) -> Page:
    """Return the store by names, sizes and its first record, which takes no time; the rest is a page of its own."""
    store, log = explorer.store, explorer.log()
    rows = [
        line("store", neutral(store.root), style="title"),
        line("version", f"{store.version.value} ({neutral(store.version_reason)})"),
        line("lock", "held: a broker may be writing" if store.is_live else "free"),
        line("log", f"{counted(len(log), 'file')} with room for offsets {log.min_offset} to {log.end_offset}"),
        line("index", counted(sum(1 for _ in store.listing.of_kind(FileKind.INDEX)), "file")),
        line("at a glance", "ends, groups, problems: Enter", link=partial(overview_page, explorer)),
        line("", "d checks the store; ? shows the keys", style="dim"),
    ]
    return ListPage(explorer.name, _ABOUT, rows, f"rmqtool info {explorer.name}", "overview")


def overview_page(explorer: Explorer) -> GrowingPage:
    """Return the store at a glance, as ``info`` shows it. It reads both ends of each queue."""
    return GrowingPage("at a glance", _ABOUT, partial(_overview, explorer), f"rmqtool info {explorer.name}")


def _overview(explorer: Explorer) -> Iterator[Row]:
    found = glance(explorer.named)
    shown = found.shown
    log = shown["commitLog"]
    yield line("store", neutral(shown["store"]), style="title")
    yield line("layout", f"{shown['layout']}, as {shown['version']} ({neutral(shown['versionReason'])})")
    yield line(
        "broker", f"{shown['broker'].get('host', 'unknown')}, lock {shown['lock']}" + (", abort file" * shown["abort"])
    )
    yield line("log", f"{counted(log['files'], 'file')} of {size(log['fileSize'])}, from {log['minOffset']} on")
    yield line("", f"end of messages: {log['maxOffset']} (the next one is stored there)")
    ends = explorer.log().end_offset
    yield line(
        "", f"end of files: {ends}" + (f" ({size(ends - log['maxOffset'])} not written)" * (ends > log["maxOffset"]))
    )
    for name, key in (("first stored", "firstStoreTimestamp"), ("last stored", "lastStoreTimestamp")):
        if key in log:
            yield line(name, timestamp(log[key], explorer.zone))
    queues = sum(len(topic["queues"]) for topic in shown["topics"].values())
    yield line("topics", f"{count(len(shown['topics']))}, with {counted(queues, 'queue')} on disk")
    yield line("index", counted(len(shown["index"]), "file"))
    yield line("groups", count(len(shown["groups"])))
    yield line("problems", counted(len(found.findings), "problem") + " at first sight; messages not read: d checks",
               style="title")  # fmt: skip
    for finding in found.findings:
        yield line(finding.severity, f"{finding.code}  {neutral(finding.message)}", style=finding.severity,
                   link=to_finding(explorer, finding), details=explained(finding))  # fmt: skip
    if found.missing is not None:
        yield line("missing", neutral(found.missing.message), style="warning", details=(found.missing.hint or "",))


def groups_page(explorer: Explorer) -> GrowingPage:
    """Return the committed offsets and the lag of consumer groups."""
    command = f"rmqtool info {explorer.name} groups"
    return GrowingPage(
        "groups", _GROUPS, partial(_groups, explorer), command, "Enter shows the next message of the group"
    )


def _groups(explorer: Explorer) -> Iterator[Row]:
    for row in glance(explorer.named, "groups").rows:
        place = f"{neutral(row['topic'])}/{row['queueId']}"
        at, end, words = row["committed"], row["maxOffset"], lag_words(row)
        cells = (neutral(row["group"]), place, str(at), "-" if end is None else str(end), words)
        about = words if row["lag"] < 0 or end is None else f"{counted(row['lag'], 'message')} to consume"
        details = (f"group {neutral(row['group'])} goes on at {place}@{at}", about)
        link = partial(explorer.queue_page, row["topic"], row["queueId"], at)
        yield line(*cells, link=link, style="warning" if row["lag"] else "", details=details)


def lag_words(row: Mapping[str, Any]) -> str:
    """Return the lag of a group in a queue, in words where it is not a number of messages."""
    if row.get("committed") is None or row["committed"] < 0:
        return "no committed offset"
    if row["maxOffset"] is None:
        return "the queue is not there"
    return count(row["lag"]) if row["lag"] >= 0 else f"{count(-row['lag'])} past the end of the queue"


def delayed_page(explorer: Explorer) -> GrowingPage:
    """Return the delayed messages and timers that wait, by the time when they are due."""
    command = f"rmqtool stat {explorer.name} delay"
    page = GrowingPage("delayed", _DELAYED, partial(_delayed, explorer), command)
    page.unit = "message"
    return page


def _delayed(explorer: Explorer) -> Iterator[Row]:
    wanted = {topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC}
    with explorer.named.reopen() as store:
        delays = list(iter_delays(store, list(iter_messages_since(store, wanted.__contains__, 0))))
    waiting = sorted((one for one in delays if one.state == "waiting"), key=lambda one: one.due)
    for delay in waiting:
        fields = message_json(delay.message).fields
        target = neutral(fields["properties"].get(REAL_TOPIC, "?"))
        due, slot = _due(delay, fields["properties"], explorer.zone)
        cells = (
            due[:19],
            delay.name,
            target,
            neutral(fields["keys"] or ""),
            preview(fields),
        )
        details = (f"due {due} in {target}{slot}", preview(fields), "Enter shows its story")
        yield line(*cells, link=explorer.to_message(delay.message.physical_offset), details=details)
    others = Counter(one.state for one in delays if one.state != "waiting")
    words = ", ".join(f"{count(number)} {state}" for state, number in sorted(others.items()))
    nothing = "nothing waits" if not waiting else f"{count(len(waiting))} waiting"
    yield remark("", "", "", "", nothing + (f"; {words}" if words else ""))


def _due(delay: Delay, properties: Mapping[str, str], zone: tzinfo | None) -> tuple[str, str]:
    """Return the time of delivery that was asked for, and the time of its slot, which the timer rounds down."""
    slot = timestamp(delay.due, zone)
    asked = parse_long(properties.get(TIMER_DELIVER_MS, ""))
    if delay.name != "timer" or asked == delay.due:
        return slot, ""
    if asked is None:
        return slot, ", rounded down to the timer's precision"
    return timestamp(asked, zone), f"; its slot of the timer is {slot[11:19]}"


def transactions_page(explorer: Explorer) -> GrowingPage:
    """Return the half messages, the newest first, and whether they are decided."""
    command = f"rmqtool stat {explorer.name} tx"
    page = GrowingPage("transactions", _HALVES, partial(_transactions, explorer), command)
    page.unit = "half message"
    return page


def _transactions(explorer: Explorer) -> Iterator[Row]:
    wanted = {*HALF_TOPICS, *HALF_TOPICS.values()}
    decided: set[tuple[str, int, int]] = set()
    offsets: set[str | None] = set()
    halves = []
    with explorer.named.reopen() as store:
        for message in iter_messages_since(store, wanted.__contains__, 0):
            if message.topic in HALF_TOPICS:
                halves.append(message)
                continue
            decided.update(decided_by(message))
            offsets.add(decided_offset(message))
    for half in reversed(halves):
        fields = message_json(half).fields
        place = (HALF_TOPICS[half.topic], half.queue_id, half.queue_offset)
        is_open = place not in decided and str(half.physical_offset) not in offsets
        target = neutral(fields["properties"].get(REAL_TOPIC, "?"))
        cells = (moment(half.store_timestamp, explorer), "open" if is_open else "decided", target)
        yield line(
            *cells, neutral(fields["keys"] or ""), preview(fields),
            link=explorer.to_message(half.physical_offset), style="warning" if is_open else "",
            details=(f"half message for {target}", preview(fields), "Enter shows its decision"),
        )  # fmt: skip


def settings_page(explorer: Explorer) -> GrowingPage:
    """Return the settings that decide how the store is read."""

    def make() -> Iterator[Row]:
        for row in glance(explorer.named, "config").rows:
            words = f"{neutral(str(row['value']))}  ({neutral(str(row['origin']))})"
            about = neutral(str(row.get("about") or ""))
            yield line(neutral(row["name"]), words, details=(f"{neutral(row['name'])} = {words}", about))

    return GrowingPage(
        "settings", (Column("setting", 26), Column("value")), make, f"rmqtool info {explorer.name} config"
    )


def text_page(explorer: Explorer, path: str) -> GrowingPage:
    """Return a configuration file as indented JSON; as text if it cannot be parsed."""
    file = explorer.file_at(path)

    def make() -> Iterator[Row]:
        data = explorer.store.read_file(path) or b""
        with open_dump(file.filesystem.shown(path)) as opened:
            value = next((region.value for region in opened.regions if region.value is not None), None)
        text = data.decode("utf-8", "replace") if value is None else json.dumps(value, indent=2, ensure_ascii=False)
        for shown in text.splitlines():
            yield line(neutral(shown), link=explorer.to_file(file))

    command = f"rmqtool dump {quote(file.filesystem.shown(path))}"
    return GrowingPage(path, (Column("content"),), make, command, "Enter shows the bytes")


def rows_page(explorer: Explorer, directory: str) -> GrowingPage:
    """Return the rows of a RocksDB database."""
    where = explorer.store.filesystem.shown(directory)

    def make() -> Iterator[Row]:
        try:
            with open_dump(where) as opened:
                for row in islice(opened.rows or iter(()), _MOST_ROWS):
                    key, value = _spelled(row["key"]), _spelled(row["value"])
                    details = (f"key {key}", f"value {value}", f"stored as {row['keyHex']} = {row['valueHex']}")
                    yield line(neutral(str(row["family"])), key, value, details=details)
        except OptionalMissing as missing:
            yield line("", "", missing.message, style="warning", details=(missing.message, missing.hint or ""))

    return GrowingPage(directory, _ROWS, make, f"rmqtool dump {quote(where)}")


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{neutral(str(name))} {neutral(str(part))}" for name, part in value.items())
    return neutral(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def wheel_page(explorer: Explorer, path: str = paths.TIMER_WHEEL) -> GrowingPage:
    """Return the timer wheel, drawn, and its slots that have pending messages, by the time when they are due."""
    file = explorer.file_at(path)

    def make() -> Iterator[Row]:
        slots: list[tuple[layouts.TimerSlot, int]] = []
        with file.filesystem.open_read(path) as opened:
            for at, length, data in iter_runs(opened, 0, opened.size(), timer.SLOT_SIZE):
                if data is not None:
                    found = (layouts.TIMER_SLOT.decode(data, place) for place in range(0, length, timer.SLOT_SIZE))
                    slots += [(slot, at + number * timer.SLOT_SIZE) for number, slot in enumerate(found)]
        data = explorer.named.reopen().read_file(paths.config_path(paths.TIMER_CHECK), checkpoints.PAGE_SIZE)
        read = checkpoints.decode_timer_checkpoint(data).last_read_time_ms if data else 0
        due = sorted((one for one in slots if one[0].num > 0), key=lambda one: one[0].time)
        for text in ring([(slot.time * 1000, slot.num) for slot, _ in due], read):
            yield line("", "", text, style="dim")
        reached = timestamp(read, explorer.zone) if read else "unknown"
        yield line("", "", f"the timer has reached {reached}; {counted(len(due), 'slot')} with messages", style="title")
        for slot, at in due:
            when = timestamp(slot.time * 1000, explorer.zone)
            is_past = slot.time * 1000 < read
            words = f"{counted(slot.num, 'message')}" + (" of an earlier lap or delivered" if is_past else "")
            details = (f"due {when}: {words}", f"slot {at // timer.SLOT_SIZE}, newest entry at {slot.last_pos}")
            yield line(when[:19], count(slot.num), words, link=explorer.to_file(file, at),
                       style="dim" if is_past else "", details=details)  # fmt: skip

    columns = (Column("due", 19), Column("messages", 8, is_number=True), Column("timer wheel"))
    shown = quote(file.filesystem.shown(path))
    return GrowingPage("timer wheel", columns, make, f"rmqtool dump {shown}", "due messages; Enter shows the slot")


def ring(due: list[tuple[int, int]], reached: int) -> list[str]:
    """Draw the wheel as a ring of one lap from ``reached`` on, clockwise from the top; denser is more messages."""
    lap = timer.WHEEL_SLOTS // 2 * 1000
    sectors: Counter[int] = Counter()
    for when, number in due:
        if reached <= when < reached + lap:
            sectors[(when - reached) * _RING // lap] += number
    most = max(sectors.values(), default=1)
    canvas = [[" "] * 39 for _ in range(9)]
    for sector in range(_RING):
        angle = 2 * math.pi * sector / _RING
        x, y = round(19 + 18 * math.sin(angle)), round(4 - 4 * math.cos(angle))
        here = sectors.get(sector, 0)
        canvas[y][x] = "·" if not here else "▁▂▃▄▅▆▇█"[min(here * 8 // (most + 1), 7)]
    for number, text in enumerate(("▲ now", "one lap:", "7 days")):
        start = 20 - len(text) // 2
        canvas[1 if number == 0 else 3 + number][start : start + len(text)] = text
    return ["".join(cells).rstrip() for cells in canvas]
