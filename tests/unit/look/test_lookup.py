"""Where a message is: what answers, what is searched, what is proven, and what is wrong with the index."""

from __future__ import annotations

import shutil
import struct

import pytest

from rmqtool.files.posix import PosixReadableFile
from rmqtool.filters.wanted import Wanted, parse_patterns
from rmqtool.look import place_search
from rmqtool.look import place_search as log_search
from rmqtool.look.lookup import Lookup
from rmqtool.look.question import QuestionKind, ask, guess_question
from rmqtool.store.open import open_store
from tests.support.stores import truth, varied_stores

ROLLBACK = 0xC


def find(root, text, kind=None, **wanted):
    topics = parse_patterns(wanted.pop("topics", ()))
    with open_store(str(root)) as opened:
        question = guess_question(text, int) if kind is None else ask(text, kind, int)
        return Lookup(opened, Wanted(topics=topics, **wanted)).find(question)


def told_by_uniq_key(name):
    """Return where the messages of each unique key lie; those that a crash tore are none."""
    found = {}
    for message in truth(name)["messages"]:
        if message["uniqKey"] and message["sysFlag"] & ROLLBACK != ROLLBACK and "recordCheck" not in message:
            found.setdefault(message["uniqKey"], []).append(message["commitLogOffset"])
    return found


def sampled(table, count=12):
    keys = sorted(table)
    return keys[:: max(len(keys) // count, 1)]


@pytest.fixture(params=[2000, 0], ids=["walked", "scanned"])
def walked(request, monkeypatch):
    """Search the log one by one, and as columns."""
    monkeypatch.setattr(log_search, "_WALKED", request.param)
    monkeypatch.setattr(place_search, "_WALKED", (request.param and 1 << 23))


@varied_stores
@pytest.mark.usefixtures("walked")
def test_without_index_and_queues_the_log_gives_the_same_messages(name, writable_store):
    root = writable_store(name)
    for directory in ("index", "consumequeue", "batchconsumequeue", "consumequeue_ext", "rocksdbstore"):
        shutil.rmtree(root / directory, ignore_errors=True)
    told = told_by_uniq_key(name)
    for key in sampled(told, 4):
        answer = find(root, key, QuestionKind.UNIQ_KEY)
        assert answer.places == told[key]
        assert answer.answered_by == ["scan"]
        assert answer.searched["log"]["bytes"] > 0


@pytest.mark.parametrize("name", ["49-killed", "49-killed-torn", "49-killed-broker", "53-killed", "49-ghost"])
def test_what_the_index_lacks_is_read_from_the_log(name, store):
    told = told_by_uniq_key(name)
    for key in sampled(told, 40):
        assert find(store(name), key, QuestionKind.UNIQ_KEY).places == told[key], key


def test_the_end_of_the_log_that_no_index_has_answers_by_scan(store):
    told = told_by_uniq_key("49-killed")
    last = max(told, key=lambda key: told[key][0])
    answer = find(store("49-killed"), last, QuestionKind.UNIQ_KEY)
    assert (answer.places, answer.answered_by) == (told[last], ["scan"])
    assert "CQ-MISSING" in {finding.code for finding in answer.findings}


def index_files(root):
    return sorted((root / "index").iterdir())


def damage_garbage(file):
    file.write_bytes(bytes((7 * at + 3) & 0xFF for at in range(file.stat().st_size)))


def damage_short(file):
    file.write_bytes(file.read_bytes()[:30])


def damage_slots(file):
    """Lead every slot beyond the entries."""
    data = bytearray(file.read_bytes())
    struct.pack_into(">64i", data, 40, *[999_999] * 64)
    file.write_bytes(data)


def damage_places(file):
    """Lead every entry into the middle of a message."""
    data = bytearray(file.read_bytes())
    entries = len(data) - 200 * 20
    for number in range(1, 200):
        place = struct.unpack_from(">q", data, entries + number * 20 + 4)[0]
        struct.pack_into(">q", data, entries + number * 20 + 4, place + 5)
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (damage_garbage, "IX-HEAD"),
        (damage_short, "IX-HEAD"),
        (damage_slots, "IX-HEAD"),
        (damage_places, "IX-HEAD"),
    ],
)
def test_a_damaged_index_is_told_of_and_the_log_answers(damage, code, writable_store):
    root = writable_store("53-basic")
    for file in index_files(root):
        damage(file)
    told = told_by_uniq_key("53-basic")
    codes = set()
    for key in sampled(told, 30):
        answer = find(root, key, QuestionKind.UNIQ_KEY)
        assert answer.places == told[key], key
        codes |= {finding.code for finding in answer.findings}
    assert code in codes


def test_a_loop_in_a_chain_ends_and_is_told_of(writable_store):
    root = writable_store("53-basic")
    file = index_files(root)[-1]
    data = bytearray(file.read_bytes())
    count = struct.unpack_from(">i", data, 36)[0]
    entries = len(data) - 200 * 20
    chains = {}
    for number in range(1, count):
        chains.setdefault(struct.unpack_from(">i", data, entries + number * 20)[0] % 64, []).append(number)
    # The oldest of a chain leads to the newest; most entries are not looked at for the geometry.
    chain = max(chains.values(), key=lambda chain: (chain[0] % 3 != 1, len(chain)))
    place = entries + chain[0] * 20
    struct.pack_into(">i", data, place + 16, chain[-1])
    file.write_bytes(data)
    told = told_by_uniq_key("53-basic")
    loops = []
    for key, places in told.items():
        answer = find(root, key, QuestionKind.UNIQ_KEY)
        assert answer.places == places, key
        loops += [(f.file, f.offset) for f in answer.findings if f.code == "IX-LOOP"]
    assert set(loops) == {(f"index/{file.name}", place)}


def test_an_entry_that_leads_elsewhere_is_told_of(writable_store):
    root = writable_store("53-basic")
    file = index_files(root)[0]
    data = bytearray(file.read_bytes())
    entries = len(data) - 200 * 20
    hashed = struct.unpack_from(">i", data, entries + 20)[0]
    struct.pack_into(">q", data, entries + 20 + 4, truth("53-basic")["messages"][50]["commitLogOffset"])
    file.write_bytes(data)
    key = truth("53-basic")["messages"][0]["uniqKey"]
    answer = find(root, key, QuestionKind.UNIQ_KEY)
    assert hashed
    assert answer.places == told_by_uniq_key("53-basic")[key]
    wrong = [finding for finding in answer.findings if finding.code == "IX-WRONG"]
    assert [(finding.file, finding.offset) for finding in wrong] == [(f"index/{file.name}", entries + 20)]


@pytest.mark.usefixtures("walked")
def test_a_key_that_is_nowhere_is_proven_and_near_ones_are_named(store):
    answer = find(store("53-broker"), "retry-00")
    assert (answer.places, answer.complete) == ([], True)
    assert "retry-0" in answer.near
    assert answer.searched["log"]["bytes"] >= truth("53-broker")["max_phy"]


@pytest.mark.usefixtures("walked")
def test_where_else_a_key_is_is_said(store):
    answer = find(store("53-broker"), "retry-0", topics=["T_delay"])
    assert answer.places == []
    assert any("T_retry (1)" in reason for reason in answer.reasons)
    answer = find(store("53-broker"), "retry-0", begin=0, end=1000)
    assert answer.places == []
    assert any("other times" in reason for reason in answer.reasons)


@pytest.mark.usefixtures("walked")
def test_unfound_in_a_damaged_log_is_not_proven(writable_store):
    root = writable_store("53-basic")
    shutil.rmtree(root / "index")
    messages = truth("53-basic")["messages"]
    victim, other = messages[5], messages[6]
    with (root / "commitlog" / "00000000000000000000").open("r+b") as file:
        file.seek(victim["commitLogOffset"])
        file.write(b"\0" * 40)
    answer = find(root, victim["uniqKey"] or "no such key", QuestionKind.UNIQ_KEY)
    assert (answer.places, answer.complete) == ([], False)
    unread = answer.searched["unread"]
    assert [(place["offset"], place["length"]) for place in unread] == [
        (victim["commitLogOffset"], victim["storeSize"])
    ]
    found = find(root, f"@{other['commitLogOffset']}")
    assert found.places == [other["commitLogOffset"]]


SEGMENT = 65536


def end_early(root, segment, how):
    """Let a segment of 49-basic end before its last three records; return where.

    ``stale``: these are older than the records before. ``zeros``: they were never written.
    """
    inside = [one for one in truth("49-basic")["messages"] if one["commitLogOffset"] // SEGMENT == segment]
    first, *others = inside[-3:]
    at = first["commitLogOffset"] % SEGMENT
    with (root / "commitlog" / f"{segment * SEGMENT:020}").open("r+b") as file:
        file.seek(at)
        file.write(bytes(100) if how == "stale" else bytes(SEGMENT - at))
        for other in others if how == "stale" else ():
            file.seek(other["commitLogOffset"] % SEGMENT + 56)
            file.write(struct.pack(">q", 1000))
    return at


@pytest.mark.usefixtures("walked")
@pytest.mark.parametrize("how", ["stale", "zeros"])
@pytest.mark.parametrize("is_next_damaged", [False, True], ids=["", "next-damaged"])
def test_a_segment_that_ends_early_within_the_log_is_not_skipped_in_silence(how, is_next_damaged, writable_store):
    """Records follow in later segments, although perhaps not at the beginning of the next one."""
    root = writable_store("49-basic")
    shutil.rmtree(root / "index")
    at = end_early(root, 2, how)
    if is_next_damaged:
        with (root / "commitlog" / f"{3 * SEGMENT:020}").open("r+b") as file:
            file.write(bytes(4))
    answer = find(root, "no such key", QuestionKind.UNIQ_KEY)
    assert not answer.complete
    unread = [(one["code"], one["file"], one["offset"], one["length"]) for one in answer.searched["unread"]]
    assert ("CL-MID", f"commitlog/{2 * SEGMENT:020}", at, SEGMENT - at) in unread


@pytest.mark.usefixtures("walked")
def test_older_records_after_the_end_of_the_log_are_normal(writable_store):
    root = writable_store("49-basic")
    shutil.rmtree(root / "index")
    end_early(root, 7, "stale")
    answer = find(root, "no such key", QuestionKind.UNIQ_KEY)
    assert answer.complete
    assert "unread" not in answer.searched


@pytest.mark.parametrize("name", ["49-basic", "53-compress", "53-lmq", "53-rocksdb", "54-rocksone", "49-dledger"])
def test_a_place_in_a_queue_leads_to_its_message(name, store):
    for topic, queues in truth(name)["queues"].items():
        for queue_id, queue in queues.items():
            first = queue.get("unitsFrom", queue["minOffset"])
            for number, unit in list(enumerate(queue["units"]))[:: max(len(queue["units"]) // 4, 1)]:
                batch = len(unit) > 3
                offset = unit[3] + unit[4] - 1 if batch else first + number
                answer = find(store(name), f"{topic}/{queue_id}@{offset}")
                assert (answer.places, answer.answered_by) == ([unit[0]], ["queue"]), (topic, queue_id, offset)


@pytest.mark.usefixtures("walked")
def test_a_place_in_a_queue_without_a_unit_is_found_in_the_log(writable_store):
    root = writable_store("49-basic")
    shutil.rmtree(root / "consumequeue" / "TopicTest")
    message = next(m for m in truth("49-basic")["messages"] if m["topic"] == "TopicTest" and m["queueOffset"] == 7)
    answer = find(root, f"TopicTest/{message['queueId']}@7")
    assert (answer.places, answer.answered_by) == ([message["commitLogOffset"]], ["scan"])
    assert [finding.code for finding in answer.findings] == ["CQ-MISSING"]


def test_a_unit_that_leads_elsewhere_is_told_of(writable_store):
    root = writable_store("49-basic")
    message = next(m for m in truth("49-basic")["messages"] if m["topic"] == "TopicTest" and m["queueOffset"] == 7)
    file = root / "consumequeue" / "TopicTest" / str(message["queueId"]) / "00000000000000000000"
    data = bytearray(file.read_bytes())
    struct.pack_into(">q", data, 7 * 20, message["commitLogOffset"] + 1)
    file.write_bytes(data)
    answer = find(root, f"TopicTest/{message['queueId']}@7")
    assert (answer.places, answer.answered_by) == ([message["commitLogOffset"]], ["scan"])
    assert {finding.code for finding in answer.findings} == {"CQ-WRONG"}


@pytest.mark.usefixtures("walked")
def test_an_offset_behind_the_queue_says_what_the_queue_holds(store):
    answer = find(store("49-basic"), "TopicTest/0@999999")
    queue = truth("49-basic")["queues"]["TopicTest"]["0"]
    assert (answer.places, answer.complete) == ([], True)
    assert f"the queue has offsets 0 to {queue['maxOffset'] - 1}" in answer.reasons


@pytest.mark.usefixtures("walked")
@pytest.mark.parametrize("offset", [1, 100])
def test_an_offset_inside_a_message_names_the_message(offset, store):
    first = truth("49-basic")["messages"][0]
    answer = find(store("49-basic"), f"@{first['commitLogOffset'] + offset}")
    assert (answer.places, answer.complete) == ([], True)
    assert answer.reasons == [f"{offset} is inside the message at 0"]
    assert answer.near[0] == "@0"


def test_a_place_outside_the_log_says_where_the_log_lies(store):
    answer = find(store("53-cleaned"), "@5")
    assert (answer.places, answer.complete) == ([], True)
    oldest = "the message stored at 2026-11-18T12:17:49.003Z; retention deletes what is older"
    assert answer.reasons == [f"5 is gone: the log begins at {truth('53-cleaned')['min_phy']} with {oldest}"]


def test_collisions_are_dropped_and_counted(store):
    told = truth("49-basic")["queryMessage"]
    row = next(row for row in told if row["key"] == "AaAa" and row["topic"] == "TopicTest" and row["maxNum"] >= 32)
    messages = {message["commitLogOffset"]: message for message in truth("49-basic")["messages"]}
    answer = find(store("49-basic"), "AaAa", QuestionKind.KEY, topics=["TopicTest"])
    assert answer.searched["index"]["collisions"] > 0
    assert all("AaAa" in messages[place]["keys"].split(" ") for place in answer.places)
    assert set(answer.places) <= set(row["phyOffsets"])


@pytest.mark.usefixtures("walked")
def test_a_tag_is_found_by_its_entries_and_without_them(store):
    for name, source in (("54-basic", "index"), ("53-basic", "scan")):
        messages = truth(name)["messages"]
        tag = next(message["tags"] for message in messages if message["tags"])
        told = [m["commitLogOffset"] for m in messages if m["tags"] == tag and m["sysFlag"] & ROLLBACK != ROLLBACK]
        answer = find(store(name), tag, QuestionKind.TAG)
        assert answer.places == told
        assert answer.answered_by == [source]


def test_the_database_of_5_4_answers_where_there_is_no_index_file(writable_store):
    pytest.importorskip("rocksdict")
    root = writable_store("54-combine")
    shutil.rmtree(root / "index")
    told = told_by_uniq_key("54-combine")
    for key in sampled(told):
        answer = find(root, key, QuestionKind.UNIQ_KEY)
        assert (answer.places, answer.answered_by) == (told[key], ["index"]), key


def test_the_newest_are_taken(store):
    every = find(store("53-compress"), "all", QuestionKind.KEY).places
    assert len(every) > 10
    assert find(store("53-compress"), "all", QuestionKind.KEY, limit=3).places == every[-3:]


def test_a_time_leads_to_the_first_message_since(store):
    messages = truth("49-basic")["messages"]
    third = messages[200]
    answer = find(store("49-basic"), str(third["storeTimestamp"]), QuestionKind.TIME)
    first = next(m for m in messages if m["storeTimestamp"] >= third["storeTimestamp"])
    assert (answer.places, answer.answered_by) == ([first["commitLogOffset"]], ["log"])


def test_a_key_costs_few_pages_of_an_index(store, monkeypatch):
    pages = set()
    read = PosixReadableFile.pread

    def pread(self, length, file_offset):
        if self.path.startswith("index/"):
            pages.update(range(file_offset // 4096, (file_offset + length - 1) // 4096 + 1))
        return read(self, length, file_offset)

    monkeypatch.setattr(PosixReadableFile, "pread", pread)
    told = told_by_uniq_key("49-default-sizes")
    topics = {message["uniqKey"]: message["topic"] for message in truth("49-default-sizes")["messages"]}
    for key, places in told.items():
        pages.clear()
        answer = find(store("49-default-sizes"), key, QuestionKind.UNIQ_KEY, topics=[topics[key]])
        assert set(answer.places) <= set(places)
        assert answer.answered_by == ["index"]
        assert len(pages) <= 6
