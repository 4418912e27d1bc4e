"""Each function of the compiled kernel beside its twin: what ``formats`` says, one record after the other.

``Comparison.look`` takes any bytes. It asserts that both say the same about them, bit for bit, and counts what was
compared, so that a test can show that there was something to compare.
"""

from __future__ import annotations

import random
import struct
import zlib
from array import array
from collections import Counter
from itertools import chain, pairwise, takewhile
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from rmqtool import kernel
from rmqtool.columns import compiled
from rmqtool.engine.get import find_span
from rmqtool.formats import layouts
from rmqtool.formats.batches import iter_batch_items
from rmqtool.formats.codes import SysFlag, TransactionType, transaction_type
from rmqtool.formats.commit_log import FIELDS, Message, check_record
from rmqtool.formats.commit_log import decode_record_in_python as decode_record
from rmqtool.formats.dispatch import DispatchRules, has_queue_unit, iter_index_texts, queue_entries, tags_code
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.index import key_hash
from rmqtool.formats.java import SHORT_MAX
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.message_json import encode_line, message_json
from rmqtool.formats.properties import decode_properties, join_properties, read_properties
from rmqtool.remoting import limits
from rmqtool.remoting.binary_header import fields_in_python
from rmqtool.remoting.command import ANSWER, FrameError, Language, RemotingCommand
from rmqtool.remoting.declared import HeaderError
from rmqtool.remoting.frames import decode_frame
from rmqtool.remoting.headers import Row
from rmqtool.remoting.json_header import header_in_python, header_text
from rmqtool.remoting.requests import REQUESTS
from tests.support.one_by_one import NUMBERS, walk

if TYPE_CHECKING:
    from rmqtool.kernel import Kernel

# As MOST_COMPARED in native/properties.h.
_MOST_COMPARED = 32
_ODD_TAGS, _ODD_KEYS, _NAMES_QUEUES, _NOT_TEXT, _BESIDE_QUEUE = 1, 2, 4, 8, 16
_ALL_CHECKS = compiled.WRONG_CRC | compiled.WRONG_PROPERTY_CRC
_FLAW_BITS = {"CL-PHY": compiled.WRONG_PLACE, "CL-TIME": compiled.WRONG_TIME}


class Comparison:
    """The kernel beside ``formats`` on many buffers."""

    def __init__(self, native: Kernel) -> None:
        self.kernel = native
        self.seen: Counter[str] = Counter()
        whole = tuple(range(len(Message._fields)))
        self.decode = native.decoder(Message, whole, decode_record)
        self.decode_many = native.decoder_of_many(Message, whole, decode_record)

    def look(self, data: bytes, base: int = 0) -> None:
        """Compare everything about ``data``, whose byte 0 is at ``base`` of a log."""
        self.seen["buffers"] += 1
        assert self.kernel.crc32(data) == zlib.crc32(data)
        starts = self._walk(data)
        messages = self._scan(data, base)
        # The walk does not look at what is inside; records it names may be none.
        self._decode(data, base, starts)
        self._decode_one(data, starts)
        self._decode_many(data, starts)
        self._span(data)
        offsets = np.array(list(messages), np.int64)
        self._dispatch(data, offsets, list(messages.values()), DispatchRules())
        self._dispatch_one(data, messages, DispatchRules())
        self._properties(data, messages)
        self._lines(data, offsets, list(messages.values()))
        self._encode(data, list(messages.items())[:20])

    def header_fields(self, data: bytes, begin: int, end: int) -> None:
        """Compare the fields of a ROCKETMQ header from ``begin`` to ``end``."""
        found = self.kernel.header_fields(data, begin, end, limits.FIELDS)
        try:
            expected = fields_in_python(data, begin, end)
        except (FrameError, struct.error, IndexError):
            assert found is None
            self.seen["refused headers"] += 1
            return
        if found is None:
            assert not is_text(data[begin:end]), "a header was declined that is plain"
            self.seen["declined headers"] += 1
            return
        assert list(found.items()) == list(expected.items())
        self.seen["fields"] += len(found)

    def json_header(self, data: bytes) -> None:
        """Compare a JSON header, and the values of its fields."""
        found = self.kernel.json_header(data, 0, len(data), limits.FIELDS)
        try:
            expected = header_in_python(header_text(data))
        except FrameError:
            assert found is None
            self.seen["refused headers"] += 1
            return
        if found is None:
            self.seen["declined headers"] += 1
            return
        code, fields, opaque, flag, language, version, remark = found
        known = None if language is None else Language.__members__.get(language)
        assert RemotingCommand(code, fields, b"", opaque, flag, known, version, remark) == expected
        self.seen["headers"] += 1
        if code in REQUESTS and fields is not None and not flag & ANSWER:
            self._typed_fields(REQUESTS[code], fields)

    def plain_requests(self, data: bytes) -> None:
        """Compare the requests to store a message, and the pulls, that frames begin with."""
        rows, stop = self.kernel.plain_requests(data, 0, limits.FRAME_BYTES, limits.PLAIN_HEADER_BYTES)
        at = 0
        row: Any
        for row in rows:
            begin, end = row[:2]
            assert begin == at
            with patch.object(kernel, "NATIVE", None):
                command = decode_frame(data[begin:end])
                header: Any = REQUESTS[command.code].decode(command.ext_fields or {})
            at = end
            if command.code in (11, 361):
                assert (command.flag, header.sys_flag & ~3, header.expression_type or "TAG") == (0, 0, "TAG")
                place = header.consumer_group, header.topic, header.queue_id, header.queue_offset, header.max_msg_nums
                assert row == (begin, end, command.opaque, *place, header.sys_flag, header.commit_offset)
                self.seen["pulls"] += 1
                continue
            assert (command.code in (10, 310), command.flag, header.sys_flag, bool(header.batch)) == (True, 0, 0, False)
            assert not header.reconsume_times
            properties = read_properties(header.properties or "")
            place = header.topic, header.queue_id, header.born_timestamp, header.flag
            assert row == (begin, end, command.opaque, *place, properties, command.body)
            assert list(row[7]) == list(properties)
            self.seen["send requests"] += 1
        assert stop == at
        self.seen["declined frames"] += at < len(data)

    def _typed_fields(self, row: Row, fields: dict[str, str]) -> None:
        found, expected = [], []
        for native in (self.kernel, None):
            with patch.object(kernel, "NATIVE", native):
                try:
                    (expected if native is None else found).append(row.decode(fields))
                except HeaderError as error:
                    (expected if native is None else found).append(str(error))
        assert found == expected
        self.seen["typed headers"] += 1

    def _walk(self, data: bytes) -> list[int]:
        expected, stop = walk(data)
        room = np.empty(len(expected) + 100, np.int64)
        found, at = self.kernel.walk(data, 0, room)
        assert (room[:found].tolist(), at) == (expected, stop)
        # In pieces, as a caller with little room gets it.
        pieces, at = [], 0
        while len(pieces) < len(expected) + 1:
            found, at = self.kernel.walk(data, at, room[:7])
            pieces += room[:found].tolist()
            if found < 7:
                break
        assert (pieces, at) == (expected, stop)
        self.seen["starts"] += len(expected)
        return expected

    def _scan(self, data: bytes, base: int) -> dict[int, Message]:
        """Compare the records back to back from the start; return them."""
        messages: dict[int, Message] = {}
        at = 0
        while isinstance(found := decode_record(data, at), Message):
            messages[at] = found
            at += found.total_size
        capacity = len(messages) + 3
        buffer = compiled.new_table(capacity)
        rows, end = self.kernel.scan(data, 0, buffer, capacity, base, _ALL_CHECKS)
        assert (rows, end) == (len(messages), at)
        self._table(compiled.columns_of(buffer, capacity, rows), data, base, messages)
        return messages

    def _decode(self, data: bytes, base: int, offsets: list[int]) -> None:
        whole: dict[int, Message] = {}
        for at in offsets:
            found = decode_record(data, at)
            if not isinstance(found, Message):
                break
            whole[at] = found
        sound = takewhile(lambda at: at in whole and is_sound(whole[at], base + at), offsets)
        assert self.kernel.sound(data, np.array(offsets, np.int64), base) == len([*sound])
        buffer = compiled.new_table(len(offsets))
        rows = self.kernel.decode(data, np.array(offsets, np.int64), buffer, base, _ALL_CHECKS)
        assert rows == len(whole)
        self._table(compiled.columns_of(buffer, len(offsets), rows), data, base, whole)

    def _table(self, columns: dict[str, Any], data: bytes, base: int, messages: dict[int, Message]) -> None:
        values = {name: column.tolist() for name, column in columns.items()}
        for row, (at, message) in enumerate(messages.items()):
            assert values["file_offset"][row] == at
            for name in NUMBERS:
                assert values[name][row] == getattr(message, name), (name, at)
            for part in ("body", "topic", "properties"):
                begin = values[f"{part}_offset"][row]
                assert data[begin : begin + values[f"{part}_length"][row]] == getattr(message, f"raw_{part}"), (
                    part,
                    at,
                )
            assert values["wrong"][row] == wrong_bits(message, data, at, base), at
        self.seen["rows"] += len(messages)

    def _decode_one(self, data: bytes, offsets: list[int]) -> None:
        for at in (*offsets[:50], -1, 1, len(data), len(data) + 1, 1 << 70, -1 << 70):
            for end in (None, at + 120, -1, 1 << 70):
                expected, found = decode_record(data, at, end), self.decode(data, at, end)
                assert found == expected
                assert type(found) is type(expected)
                if isinstance(found, Message):
                    assert [*map(type, found)] == [*map(type, expected)]
                    self.seen["messages"] += 1

    def _decode_many(self, data: bytes, offsets: list[int]) -> None:
        """Compare messages, and every field by itself, at the starts and where none is."""
        wanted = array("q", [*offsets[:50], -1, 1, len(data), len(data) + 1, -(1 << 63), (1 << 63) - 1])
        expected = [decode_record(data, at) for at in wanted]
        found = self.decode_many(data, wanted)
        assert (found, [*map(type, found)]) == (expected, [*map(type, expected)])
        declined: list[int] = []
        read = self.kernel.decoder_of_many(tuple, tuple(range(len(FIELDS))), lambda _, at: declined.append(at))
        for message, fields in zip(expected, read(data, wanted), strict=True):
            if fields is not None:
                assert fields == tuple(getattr(message, name) for name in FIELDS)
                self.seen["fields of records"] += len(fields)
            elif isinstance(message, Message):
                texts = message.raw_topic + message.raw_properties
                assert not is_text(texts), "fields were declined that are plain"
        assert declined == [at for at in wanted if at in set(declined)]

    def _span(self, data: bytes) -> None:
        """Compare the range of the log that queue entries are in, for entries and for noise."""
        units = [unit.tobytes() for unit in np.frombuffer(data, np.uint8)[: len(data) // 20 * 20].reshape(-1, 20)[:64]]
        sound = [struct.pack(">qiq", number * 300, 90 + number, 0) for number in range(len(units) % 9)]
        joined = [struct.pack(">qiq", 700 + number * 90, 90, 0) for number in range(len(units) % 9)]
        spans = (units, sound, sound[1:] + sound[:1], sound + units[:1], joined, joined[:2] + joined[3:])
        for entries in map(b"".join, spans):
            ours, theirs = (array("q", bytes(8 * (len(entries) // 20))) for _ in range(2))
            expected = find_span(entries, theirs) if entries else None
            found = self.kernel.span(entries, ours)
            assert found == expected
            if found is not None:
                assert ours == theirs
                self.seen["spans"] += 1

    def _properties(self, data: bytes, messages: dict[int, Message]) -> None:
        """Compare the columns of all properties, and of two with columns of their own, or why there are none."""
        blocks = [message.raw_properties for message in messages.values()]
        begins = [at + one.total_size - len(one.raw_properties) for at, one in messages.items()]
        wanted = [b"KEYS", b"x"]
        with patch.object(kernel, "NATIVE", self.kernel):
            found = compiled.property_columns(
                np.frombuffer(data, np.uint8),
                np.array(begins, np.int64),
                np.array([*map(len, blocks)], np.int64),
                wanted,
            )
        if found is None:
            pieces = [[piece.split(b"\1", 1) for piece in block.split(b"\2")] for block in blocks]
            pairs = [[pair for pair in some if len(pair) > 1 and all(pair)] for some in pieces]
            assert not all(map(is_text, blocks)) or any(
                len({name for name, _ in some}) < len(some) or len(some) > _MOST_COMPARED for some in pairs
            ), "properties were declined that are plain"
            self.seen["declined properties"] += 1
            return
        expected = [decode_properties(block) for block in blocks]
        names, values = texts_of(found.names), texts_of(found.values)
        ends = found.ends.tolist()
        assert ends[0] == 0
        assert [dict(zip(names[a:b], values[a:b], strict=True)) for a, b in pairwise(ends)] == expected
        assert len(names) == len(values) == sum(map(len, expected)) == ends[-1]
        assert [*names] == [name for one in expected for name in one]
        for name, column in zip(wanted, found.wanted, strict=True):
            assert texts_of(column) == [one.get(name.decode(), "") for one in expected]
        self.seen["properties"] += len(names)

    def _dispatch(self, data: bytes, offsets: Any, messages: list[Message], rules: DispatchRules) -> None:
        count, most_keys = len(offsets), sum(len(message.raw_properties) for message in messages) + 2 * len(messages)
        codes, flags = np.empty(count, np.int32), np.empty(count, np.uint8)
        units, topic_rows = np.empty(count * layouts.CONSUME_QUEUE_UNIT.size, np.uint8), np.empty(2048, np.int32)
        hashes, rows = np.empty(most_keys, np.int32), np.empty(most_keys, np.int32)
        tag_hashes, delays = np.empty(count, np.int32), np.array(rules.delays, np.int64)
        done, topics, keys = self.kernel.dispatch(
            data, offsets, delays, codes, units, flags, topic_rows, hashes, rows, tag_hashes
        )
        assert done == count
        assert [messages[row].raw_topic for row in topic_rows[:topics]] == list(
            dict.fromkeys(message.raw_topic for message in messages)
        )
        expected_keys: list[tuple[int, int]] = []
        for row, (message, unit) in enumerate(
            zip(messages, layouts.CONSUME_QUEUE_UNIT.iter_decode(units.tobytes()), strict=True)
        ):
            flag = int(flags[row])
            assert messages[topic_rows[codes[row]]].raw_topic == message.raw_topic
            assert unit[:2] == (message.physical_offset, message.total_size)
            assert (flag & _BESIDE_QUEUE == 0) == has_queue_unit(message.sys_flag)
            assert (flag & _NAMES_QUEUES != 0) == bool(message.properties.get("INNER_MULTI_DISPATCH"))
            assert (flag & _NOT_TEXT == 0) == is_text(message.raw_properties)
            if not flag & _ODD_TAGS:
                assert unit.tags_code == tags_code(message, rules.delays)
            if not flag & _ODD_KEYS:
                expected_keys += [(row, key_hash(text)) for text in iter_index_texts(message, rules)]
                with_tag = [*iter_index_texts(message, DispatchRules(tag_entries=True))]
                tag = with_tag[len([*iter_index_texts(message, rules)]) :]
                assert tag_hashes[row] == (key_hash(tag[0]) if tag else -1)
            # Only what is no text, or a number in other digits, may be left to the caller.
            if flag & (_ODD_TAGS | _ODD_KEYS):
                assert not (message.raw_topic + message.raw_properties).isascii()
                self.seen["odd rows"] += 1
        assert list(zip(rows[:keys].tolist(), hashes[:keys].tolist(), strict=True)) == expected_keys
        self.seen["keys"] += keys
        self._group(codes, messages, rules)

    def _dispatch_one(self, data: bytes, messages: dict[int, Message], rules: DispatchRules) -> None:
        delays = np.array(rules.delays, np.int64)
        for at, message in list(messages.items())[:50]:
            base = message.physical_offset - at
            if not -(1 << 63) <= base < 1 << 63:
                continue
            assert self.kernel.dispatch_one(data, at, (base + 1 + (1 << 63)) % (1 << 64) - (1 << 63), delays) is None
            found = self.kernel.dispatch_one(data, at, base, delays)
            if found is None:
                properties = message.raw_properties
                assert (
                    message.store_timestamp <= 0
                    or message.properties.get("INNER_MULTI_DISPATCH")
                    or len(message.properties.get("KEYS", "")) > 500
                    or not is_text(properties)
                    or not (message.raw_topic + properties).isascii()
                ), "a record was declined that is plain"
                self.seen["declined records"] += 1
                continue
            has_unit = has_queue_unit(message.sys_flag)
            unit = layouts.CONSUME_QUEUE_UNIT.encode(
                ConsumeQueueUnit(message.physical_offset, message.total_size, tags_code(message, rules.delays))
            )
            texts = [*iter_index_texts(message, rules)]
            tag = [*iter_index_texts(message, DispatchRules(tag_entries=True))][len(texts) :]
            expected = (
                *(message.total_size, message.raw_topic, message.queue_id, message.queue_offset),
                *(message.store_timestamp, unit if has_unit else b"", tuple(map(key_hash, texts))),
                key_hash(tag[0]) if tag else -1,
            )
            assert found == expected
            self.seen["records dispatched alone"] += 1
        for wrong in (-1, len(data), len(data) + 1, (1 << 63) - 1, -(1 << 63)):
            assert self.kernel.dispatch_one(data, wrong, 0, delays) is None

    def _group(self, codes: Any, messages: list[Message], rules: DispatchRules) -> None:
        queue_ids = np.array([message.queue_id for message in messages], np.int32)
        count = len(messages)
        order, scratch = np.empty(count, np.int32), np.empty(count, np.int32)
        ends, firsts = np.empty(4096, np.int32), np.empty(4096, np.int32)
        queues = self.kernel.group(codes, queue_ids, order, scratch, ends, firsts)
        expected: dict[tuple[str, int], list[int]] = {}
        for row, message in enumerate(messages):
            expected.setdefault((message.raw_topic.hex(), message.queue_id), []).append(row)
        assert queues == len(expected)
        assert [*chain.from_iterable(expected.values())] == order.tolist()
        assert np.cumsum([len(rows) for rows in expected.values()]).tolist() == ends[:queues].tolist()
        assert [rows[0] for rows in expected.values()] == firsts[:queues].tolist()
        units = [entry.unit for message in messages for entry in [*queue_entries(message, rules)][:1]]
        self.seen["units"] += len(units)

    def _lines(self, data: bytes, offsets: Any, messages: list[Message]) -> None:
        out, ends, row = np.empty(24 * len(data) + 4096, np.uint8), np.empty(len(offsets), np.int64), 0
        while row < len(offsets):
            first = row
            row, used = self.kernel.json_lines(data, offsets, row, ends, out)
            begins = (0, *ends[first:row].tolist())[: row - first]
            for message, begin, end in zip(messages[first:row], begins, ends[first:row].tolist(), strict=True):
                line = encode_line(message_json(message).fields).encode() + b"\n"
                assert out[begin:end].tobytes() == line
                self.seen["lines"] += 1
            assert used == (ends[row - 1] if row > first else 0)
            if row < len(offsets):
                declined = messages[row]
                assert (
                    declined.sys_flag & SysFlag.COMPRESSED
                    or not (is_text(declined.raw_topic) and is_text(declined.raw_properties))
                    or declined.raw_properties.count(b"\1") > 64
                ), "a line was declined that is plain"
                self.seen["declined lines"] += 1
                row += 1

    def batch(self, data: bytes) -> None:
        """Compare the records of a client's batch with those of one message after the other; any bytes may be one."""
        topic, shared, most = b"\1T", b"MSG_REGION\1r\2", 4000
        head = (3, 0, 1700000000000, bytes(16), 1, b"\x7f\0\0\1", 2, 4, 5)
        found = self.kernel.encode_batch(0xDAA320A7, *head, data, topic, shared, most)
        items = list(iter_batch_items(data))
        if not items or any(isinstance(item, Flaw) for item in items):
            assert found is None
            self.seen["refused batches"] += 1
            return
        queue_id, sys_flag, *rest = head
        texts = [join_properties(item.raw_properties, shared) for item in items if not isinstance(item, Flaw)]
        if max(map(len, texts)) > SHORT_MAX:
            assert found is None
            return
        records = [
            self.kernel.encode(0xDAA320A7, queue_id, item.flag, sys_flag, *rest, item.body, topic, text, False)
            for item, text in zip(items, texts, strict=True)
            if not isinstance(item, Flaw)
        ]
        if max(map(len, records)) > most:
            assert found is None
            self.seen["declined batches"] += 1
            return
        assert found == (b"".join(records), len(records))
        places = array("q", bytes(8 * len(records)))
        self.kernel.place_batch(found[0], 7, 1 << 40, 1700000000123, places)
        at = 1 << 40
        for number, (one, place) in enumerate(zip(records, places, strict=True), 7):
            self.kernel.place(one, number, at, 1700000000123, False)
            assert place == at
            at += len(one)
        assert found[0] == b"".join(records)
        self.seen["batches"] += 1

    def _encode(self, data: bytes, messages: list[tuple[int, Message]]) -> None:
        """Make records again from their fields: the same bytes, but for what the writer does not take over."""
        for at, message in messages:
            stored = bytearray(data[at : at + message.total_size])
            width = 1 if message.magic == 0xDAA320A7 else 2
            begin = message.total_size - len(message.raw_properties) - 2 - len(message.raw_topic) - width
            topic = stored[begin : begin + width + len(message.raw_topic)]
            made = self.kernel.encode(
                *(message.magic, message.queue_id, message.flag, message.sys_flag, message.born_timestamp),
                *(message.born_host_ip, message.born_host_port, message.store_host_ip, message.store_host_port),
                *(message.reconsume_times, message.prepared_transaction_offset, message.raw_body, bytes(topic)),
                *(message.raw_properties, False),
            )
            self.kernel.place(made, message.queue_offset, message.physical_offset, message.store_timestamp, False)
            layouts.INT.pack_into(stored, 8, zlib.crc32(message.raw_body) & 0x7FFFFFFF)
            assert made == stored
            self.seen["encoded"] += 1
            self._plain_record(message, bytes(topic))

    def _plain_record(self, message: Message, topic: bytes) -> None:
        """Make the record of a message in one call from a mapping, and in three from its text: the same bytes."""
        given = decode_properties(message.raw_properties)
        host = (message.store_host_ip, message.store_host_port)
        constants = tuple(None if number % 2 else value for number, value in enumerate(given.values()))
        numbers = (message.flag, message.queue_id, message.queue_offset, message.physical_offset)
        times = (message.born_timestamp, message.store_timestamp)
        for is_terminated in (False, True) if len(given) <= 64 and message.queue_id >= 0 else ():
            text = "\2".join(f"{name}\1{value}" for name, value in given.items())
            text = f"{text}\2" if given and is_terminated else text
            head = (message.magic, topic, *host, tuple(given), constants, -1, is_terminated)
            expected = self.kernel.encode(
                *(message.magic, message.queue_id, message.flag, 0, message.born_timestamp, *host, *host, 0, 0),
                *(message.raw_body, topic, text.encode(), False),
            )
            self.kernel.place(expected, *numbers[2:], message.store_timestamp, False)
            for most in (len(expected), len(expected) - 1):
                kind = self.kernel.record_kind(*head, most)
                made = self.kernel.plain_record(kind, given, "", message.raw_body, *numbers, *times, None)
                assert made == (expected if most == len(expected) else None)
            self.seen["plain records"] += 1


def is_sound(message: Message, physical_offset: int) -> bool:
    """Whether a message is right but for its checksums, and not rolled back, as the placeholders of repairs are."""
    is_rolled_back = transaction_type(message.sys_flag) is TransactionType.ROLLBACK
    return message.physical_offset == physical_offset and message.store_timestamp > 0 and not is_rolled_back


def wrong_bits(message: Message, data: bytes, at: int, base: int) -> int:
    """What ``check_record`` finds, as bits of the column ``wrong``."""
    bits = 0
    for flaw in check_record(message, data, at, base + at):
        if flaw.code == "CL-CRC":
            is_of_body = flaw.message.startswith("body")
            bits |= compiled.WRONG_CRC if is_of_body else compiled.WRONG_PROPERTY_CRC
        else:
            bits |= _FLAW_BITS[flaw.code]
    return bits


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def damage(rng: random.Random, data: bytes) -> bytes:
    """Return ``data`` with some damage: flipped bits, numbers that lie, bytes that are gone or too many."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 40))):
        if not found:
            break
        at = rng.randrange(len(found))
        match rng.randrange(7):
            case 0:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                number = rng.choice((0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 255, 91))
                found[at : at + 4] = number.to_bytes(4, "big")[: len(found) - at]
            case 2:
                found[at : at + rng.choice((1, 8, 20, 512))] = b""
            case 3:
                found[at:at] = rng.randbytes(rng.choice((1, 8, 20)))
            case 4:
                found[at : at + 16] = bytes(len(found[at : at + 16]))
            case 5:
                found[at : at + 8] = rng.randbytes(len(found[at : at + 8]))
            case _:
                found[at] = rng.choice((1, 2, 0xED, 0xFF, 0xC0, 34, 92, 0, 32))
    return bytes(found)


def texts_of(column: compiled.Texts) -> list[str]:
    text = column.text.tobytes()
    return [text[begin:end].decode() for begin, end in pairwise(column.ends.tolist())]
