"""Counts against sums over what the real classes read."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, timedelta, timezone

import numpy as np
import pytest

from rmqtool.api.stat import DIMENSIONS
from rmqtool.filters.wanted import parse_patterns
from rmqtool.formats.hosts import parse_host
from rmqtool.log import group as group_tables
from rmqtool.log.group import Groups, GroupTable, hash_values, join_tables, start_of_day, start_of_hour
from rmqtool.log.ranges import Effort
from rmqtool.log.select import Selection
from rmqtool.look.stat_reports import report_delays, report_retention, report_retries, report_transactions
from rmqtool.look.statistics import CELLS, Wish, read_log_map, read_statistics
from rmqtool.store.open import open_store
from tests.support.stores import every_store, truth

HOUR = 3_600_000


def count(root, *wishes, selection=None):
    with open_store(str(root)) as opened:
        return read_statistics(opened, selection or Selection(), wishes, Effort())


def told(name):
    """Return the messages that the real classes took for whole."""
    return [message for message in truth(name)["messages"] if "recordCheck" not in message]


def keys(message):
    return list(dict.fromkeys(key for key in (message["keys"] or "").split(" ") if key)) or [None]


def size_class(size):
    classes = [2**power for power in range(40)]
    return next(most for most in classes if most >= size)


VALUES = {
    "topic": lambda message: [message["topic"]],
    "queue": lambda message: [message["queueId"]],
    "tag": lambda message: [message["tags"]],
    "key": keys,
    "producer": lambda message: [parse_host(message["bornHost"])[0]],
    "hour": lambda message: [message["storeTimestamp"] // HOUR * HOUR],
    "day": lambda message: [message["storeTimestamp"] // (24 * HOUR) * 24 * HOUR],
    "size": lambda message: [size_class(message["storeSize"])],
}


def summed(messages, by):
    found: dict[tuple, list[int]] = {}
    for message in messages:
        groups = [()]
        for name in by:
            groups = [(*group, value) for group in groups for value in VALUES[name](message)]
        for group in groups:
            figures = found.setdefault(group, [0, 0, 0, 2**63, 0])
            figures[0] += 1
            figures[1] += message["storeSize"]
            figures[2] += message["storedBodyLength"]
            figures[3] = min(figures[3], message["storeTimestamp"])
            figures[4] = max(figures[4], message["storeTimestamp"])
    return found


def figures_of(statistics):
    names = ("messages", "bytes", "bodyBytes", "firstStoreTimestamp", "lastStoreTimestamp")
    found = {}
    for row in statistics.rows:
        group = tuple(
            parse_host(f"{row[name]}:0" if ":" not in row[name] else f"[{row[name]}]:0")[0]
            if name == "producer"
            else row[name]
            for name in statistics.by
        )
        assert group not in found
        found[group] = [row[name] for name in names]
    return found


@every_store
def test_totals_equal_sums_over_the_truth(name, store):
    messages = told(name)
    ways = [(name,) for name in VALUES] + [("topic", "queue"), ("tag", "key", "hour"), ("producer", "day", "size")]
    for by, found in zip(ways, count(store(name), *(Wish(by, UTC) for by in ways)), strict=True):
        assert figures_of(found) == summed(messages, by), by
        assert (found.messages, found.bytes) == (len(messages), sum(message["storeSize"] for message in messages))
        assert found.groups == len(found.rows)


def test_kinds_and_groups(store):
    by_kind, by_group = count(store("53-broker"), Wish(("kind",)), Wish(("group",)))
    messages = told("53-broker")
    prefixes = {
        "%RETRY%": "retry",
        "%DLQ%": "dlq",
        "rmq_sys_": "system",
        "RMQ_SYS_": "system",
        "SCHEDULE_": "system",
        "TRANS_CHECK_": "system",
    }
    kinds = Counter(
        next((kind for prefix, kind in prefixes.items() if m["topic"].startswith(prefix)), "normal") for m in messages
    )
    assert {row["kind"]: row["messages"] for row in by_kind.rows} == kinds
    groups = {row["group"]: row["messages"] for row in by_group.rows}
    assert groups["G_retry"] == sum(m["topic"] in ("%RETRY%G_retry", "%DLQ%G_retry") for m in messages)
    assert groups["PG_trans"] == sum(
        m["properties"].get("PGROUP") == "PG_trans" and not m["topic"].startswith("%") for m in messages
    )


def test_only_the_largest_are_shown(store):
    every, largest = count(store("49-basic"), Wish(("key",)), Wish(("key",), top=3))
    assert largest.rows == every.rows[:3]
    assert (len(largest.rows), largest.groups) == (3, every.groups)
    assert [row["bytes"] for row in every.rows] == sorted((row["bytes"] for row in every.rows), reverse=True)


def test_a_selection_narrows_what_is_counted(store):
    messages = [m for m in told("49-basic") if m["topic"] == "TopicTest" and m["tags"] == "TagA"]
    topics = parse_patterns(["Topic*"])
    (found,) = count(store("49-basic"), Wish(("tag",)), selection=Selection(topics=topics))
    assert {row["tag"]: row["messages"] for row in found.rows}["TagA"] == len(messages)


def test_damage_is_counted_apart(writable_store):
    root = writable_store("53-basic")
    victim = told("53-basic")[10]
    with (root / "commitlog" / "00000000000000000000").open("r+b") as file:
        file.seek(victim["commitLogOffset"])
        file.write(b"\xff" * 20)
    (found,) = count(root, Wish(("topic",)))
    assert found.messages == len(told("53-basic")) - 1
    assert found.damaged_bytes == victim["storeSize"]
    assert [(damage.code, damage.file_offset) for damage in found.damages] == [("CL-MAGIC", victim["commitLogOffset"])]


def test_duplicates_are_those_of_ordinary_topics(writable_store):
    root = writable_store("49-basic")
    body, unique = count(
        root,
        Wish(("topic", "body"), least=2, normal_only=True),
        Wish(("topic", "uniqKey"), least=2, normal_only=True),
    )
    system = "SCHEDULE_TOPIC_XXXX"
    bodies = Counter((m["topic"], m["storedBodySha256"]) for m in told("49-basic") if m["topic"] != system)
    assert sorted(row["messages"] for row in body.rows) == sorted(n for n in bodies.values() if n > 1)
    ids = Counter((m["topic"], m["uniqKey"]) for m in told("49-basic") if m["topic"] != system)
    assert {(row["topic"], row["uniqKey"]): row["messages"] for row in unique.rows} == {
        key: n for key, n in ids.items() if n > 1
    }


@pytest.mark.parametrize("name", ["53-broker", "54-broker"])
def test_transactions_are_counted_by_how_they_ended(name, store):
    with open_store(str(store(name))) as opened:
        found = report_transactions(opened, Selection(), Effort())
    fates = truth(name)["extra"]["uniqKeys"]
    (row,) = found.rows
    halves = [m for m in told(name) if m["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"]
    assert (row["group"], row["messages"]) == ("PG_trans", len(halves))
    assert row["committed"] == len(fates["transCommit"]) + len(fates["transCheckedCommit"])
    assert row["rolledBack"] == len(fates["transRollback"]) + len(fates["transCheckedRollback"])
    assert (row["givenUp"], row["undecided"]) == (len(fates["transNeverDecided"]), 0)
    assert row["checks"] == sum("TRANSACTION_CHECK_TIMES" in m["properties"] for m in halves)


@pytest.mark.parametrize("name", ["53-broker", "54-broker"])
def test_retries_are_counted_by_group(name, store):
    with open_store(str(store(name))) as opened:
        found = report_retries(opened, Selection(), Effort())
    rows = {(row["group"], row["topic"]): row for row in found.rows}
    retried = [m for m in told(name) if m["topic"] == "%RETRY%G_retry"]
    dead = [m for m in told(name) if m["topic"] == "%DLQ%G_retry"]
    row = rows["G_retry", "T_retry"]
    assert (row["retries"], row["deadLetters"]) == (len(retried), len(dead))
    assert row["most"] == max(m["reconsumeTimes"] for m in retried + dead)
    assert rows["G_order", "T_fifo"]["deadLetters"] == 1
    revived = [m for m in told(name) if m["topic"] == "%RETRY%G_pop_T_pop"]
    assert rows["G_pop_T_pop", None]["revived"] == len(revived)


@pytest.mark.parametrize("name", ["53-broker", "54-broker"])
def test_delays_are_counted_by_level(name, store):
    with open_store(str(store(name))) as opened:
        found = report_delays(opened, Selection(), Effort(), 0)
    rows = {row["delay"]: row for row in found.rows}
    scheduled = Counter(m["queueId"] + 1 for m in told(name) if m["topic"] == "SCHEDULE_TOPIC_XXXX")
    assert {level: rows[f"level {level}"]["messages"] for level in scheduled} == scheduled
    progress = truth(name)["configFiles"]["delayOffset.json"]["offsetTable"]
    for level, messages in scheduled.items():
        row = rows[f"level {level}"]
        assert (row["delivered"], row["waiting"]) == (progress[str(level)], messages - progress[str(level)])
    fates = truth(name)["extra"]["uniqKeys"]
    assert rows["timer"]["delivered"] == len(fates["timerDelivered"])
    assert rows["timer"]["waiting"] == len(fates["timerPending"])


def test_timers_that_roll_and_that_are_cancelled_are_counted(store):
    with open_store(str(store("53-timer"))) as opened:
        (row,) = report_delays(opened, Selection(), Effort(), 0).rows
    timers = [m for m in told("53-timer") if m["topic"] == "rmq_sys_wheel_timer"]
    delivered = [m for m in told("53-timer") if m not in timers and "TIMER_OUT_MS" in m["properties"]]
    assert (row["delay"], row["messages"]) == ("timer", len(timers))
    assert row["rolled"] == sum("TIMER_ROLL_TIMES" in m["properties"] for m in timers)
    assert (row["cancelled"], row["cancels"], row["delivered"]) == (2, 3, len(delivered))
    assert row["waiting"] == len(timers) - row["rolled"] - 2 - 3 - len(delivered)


def test_retention_says_what_goes_and_who_has_not_read_it(store):
    with open_store(str(store("49-broker"))) as opened:
        found = report_retention(opened, Selection(), Effort())
    told_files = {name: mtime for name, (_, mtime) in truth("49-broker")["fileMtimes"].items()}
    for row in found.rows:
        assert row["expiresTimestamp"] == told_files[f"commitlog/{row['segment']:020d}"] + 72 * HOUR
        inside = [m for m in told("49-broker") if row["segment"] <= m["commitLogOffset"] < row["segment"] + 40960]
        assert row["messages"] == len(inside)
    table = truth("49-broker")["configFiles"]["consumerOffset.json"]["offsetTable"]["Bulk@g_lag"]
    behind = sum(
        m["topic"] == "Bulk" and m["queueOffset"] >= table.get(str(m["queueId"]), 10**9) for m in told("49-broker")
    )
    unread = [one for row in found.rows for one in row["unread"] if one["group"] == "g_lag"]
    assert sum(one["messages"] for one in unread) == behind


def test_the_map_shows_every_segment(store):
    with open_store(str(store("53-broker"))) as opened:
        found = read_log_map(opened, Selection(), Effort())
    assert list(found.lines) == [0, 65536, 131072, 196608]
    assert all(len(cells) == CELLS for cells in found.lines.values())
    starts = {m["commitLogOffset"] for m in told("53-broker")}
    for start, cells in found.lines.items():
        for number, cell in enumerate(cells):
            begins = any(start + number * found.span <= at < start + (number + 1) * found.span for at in starts)
            assert (cell is not None) == begins


@pytest.mark.parametrize(("held", "pieces"), [(1 << 20, 1), (20_000, 4), (5_000, 15)])
def test_many_groups_add_up_in_memory_and_on_disk(held, pieces, monkeypatch):
    monkeypatch.setattr(group_tables, "HELD", held)
    monkeypatch.setattr(group_tables, "_PENDING", 8_000)
    rng = np.random.default_rng(7)
    spread = np.uint64((1 << 64) // (1 << 16))
    expected: Counter[int] = Counter()
    with Groups() as groups:
        for _ in range(20):
            hashes = np.unique(rng.integers(0, 1 << 16, 5000).astype(np.uint64)) * spread
            ones = np.ones(len(hashes), np.int64)
            groups.add(GroupTable(hashes, ones, 2 * ones, ones, ones, 3 * ones, hashes.view(np.int64)))
            expected.update(hashes.tolist())
        found = list(groups.pieces())
    assert len(found) >= pieces
    assert max(map(len, found)) <= held
    table = join_tables(found)
    assert len(table) == len(expected)
    assert dict(zip(table.hashes.tolist(), table.messages.tolist(), strict=True)) == expected
    assert (np.diff(table.hashes.astype(float)) > 0).all()
    assert (table.bytes == 2 * table.messages).all()
    assert (table.places == table.hashes.view(np.int64)).all()


def test_calendars_follow_the_zone():
    east = timezone(timedelta(hours=5, minutes=30))
    assert start_of_hour(10 * HOUR, east) == 10 * HOUR - HOUR // 2
    assert start_of_day(10 * HOUR, east) == -5 * HOUR - HOUR // 2
    assert start_of_day(10 * HOUR, UTC) == 0


def test_dimensions_have_different_hashes():
    assert len({hash_values((value,)) for value in (None, "None", 0, "0", 1)}) == 5
    assert set(VALUES) | {"kind", "group"} == set(DIMENSIONS)
