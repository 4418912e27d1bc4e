"""Hosts and offset message ids."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.columns.hosts import coded_hosts, offset_msg_ids
from rmqtool.columns.records import Records, decode_records
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.hosts import format_host
from rmqtool.formats.ids import encode_offset_msg_id
from tests.support.builders import BORN_V4_HOST, BORN_V6_HOST, EXAMPLE_A, EXAMPLE_D, STORE_V6_HOST, Host, record
from tests.support.seeded_stores import make_segment


def decode(*parts: bytes) -> Records:
    found, declined = decode_records(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1])
    assert declined is None
    return found


def texts(records: Records, which: str) -> list[str]:
    found = coded_hosts(records, which)  # type: ignore[arg-type]
    return [found.values[code] for code in found.codes]


def test_literals() -> None:
    found = decode(EXAMPLE_A, EXAMPLE_D)
    assert texts(found, "born_host") == ["192.168.1.10:54321", "[fe80::1]:54321"]
    assert texts(found, "store_host") == ["192.168.1.20:10911", "[2001:db8::20]:10911"]
    assert offset_msg_ids(found).to_pylist() == [
        "C0A8011400002A9F0000000000000400",
        "20010DB800000000000000000000002000002A9F0000000000000400",
    ]


def test_ipv4_alone() -> None:
    found = decode(EXAMPLE_A, record(store_host=Host(b"\xff\0\1\2", -1), physical_offset=-2))
    assert texts(found, "store_host") == ["192.168.1.20:10911", "255.0.1.2:-1"]
    assert offset_msg_ids(found).to_pylist() == [
        "C0A8011400002A9F0000000000000400",
        "FF000102FFFFFFFFFFFFFFFFFFFFFFFE",
    ]


def test_an_ipv4_host_is_not_its_likeness_in_ipv6() -> None:
    alike = Host(BORN_V4_HOST.ip + bytes(12), BORN_V4_HOST.port)
    found = decode(record(born_host=BORN_V4_HOST), record(born_host=alike), record(born_host=BORN_V6_HOST))
    assert texts(found, "born_host") == ["192.168.1.10:54321", "[c0a8:10a::]:54321", "[fe80::1]:54321"]


@pytest.mark.parametrize("seed", [3, 26, 41, 77, 120])
def test_like_one_by_one(seed: int) -> None:
    segment = make_segment(seed)
    found, _ = decode_records(segment.data, np.array(segment.starts, np.int64))
    messages = [decode_record(segment.data, at) for at in segment.starts]
    assert all(isinstance(message, Message) for message in messages)
    assert texts(found, "born_host") == [format_host(m.born_host_ip, m.born_host_port) for m in messages]
    assert texts(found, "store_host") == [format_host(m.store_host_ip, m.store_host_port) for m in messages]
    ids = [encode_offset_msg_id(m.store_host_ip, m.store_host_port, m.physical_offset) for m in messages]
    assert offset_msg_ids(found).to_pylist() == ids


def test_all_ipv6() -> None:
    one = record(born_host=BORN_V6_HOST, store_host=STORE_V6_HOST, physical_offset=7)
    found = decode(one, one)
    assert len(set(offset_msg_ids(found).to_pylist())) == 1
    assert offset_msg_ids(found)[0].as_py().endswith("0007")
