"""Hosts as text, for people."""

from __future__ import annotations

import pytest

from rmqtool.formats import hosts

V6 = bytes.fromhex("20010db8000000000000000000000006")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("c0a8010a", "192.168.1.10"),
        ("20010db8000000000000000000000006", "2001:db8::6"),
        ("00000000000000000000000000000000", "::"),
        ("00000000000000000000000000000001", "::1"),
        ("fe800000000000000000000000000000", "fe80::"),
        ("20010db8000000010000000000000006", "2001:db8:0:1::6"),
        ("20010db8000000010001000100010001", "2001:db8:0:1:1:1:1:1"),
        ("20010000000000010000000000000001", "2001:0:0:1::1"),
        ("20010000000000010001000000000001", "2001::1:1:0:0:1"),
        ("00000000000000000000ffff01020304", "::ffff:102:304"),
    ],
)
def test_addresses_for_people(address: str, text: str) -> None:
    assert hosts.format_address(bytes.fromhex(address)) == text
    assert hosts.parse_address(text) == bytes.fromhex(address)


def test_hosts() -> None:
    assert hosts.format_host(bytes([127, 0, 0, 1]), 10911) == "127.0.0.1:10911"
    assert hosts.format_host(V6, 4006) == "[2001:db8::6]:4006"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("127.0.0.1:10911", (bytes([127, 0, 0, 1]), 10911)),
        ("[2001:db8::6]:4006", (V6, 4006)),
        ("2001:db8:0:0:0:0:0:6:4006", (V6, 4006)),
        ("[2001:0db8:0000:0000:0000:0000:0000:0006]:4006", (V6, 4006)),
        ("127.0.0.1", None),
        ("127.0.0.1:", None),
        ("127.0.0.1:65536", None),
        ("127.0.0.1:-1", None),
        ("127.0.0.1:1x", None),
        ("127.0.0.1:٣", None),
        ("[127.0.0.1]:1", None),
        ("256.0.0.1:1", None),
        ("host:1", None),
        ("", None),
        ("[]:1", None),
        ("127.0.0.1:" + "0" * 5000 + "1", None),
    ],
)
def test_parsing(text: str, host: tuple[bytes, int] | None) -> None:
    assert hosts.parse_host(text) == host


def test_no_other_length_is_an_address() -> None:
    with pytest.raises(ValueError, match="4 or 16 bytes, not 5"):
        hosts.format_address(bytes(5))
