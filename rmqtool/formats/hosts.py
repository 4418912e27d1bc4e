"""Host addresses as text.

In a record a host is an address of 4 or 16 bytes and a port of 4. Java writes IPv6 without ``::``, with brackets or
without; ``parse_host`` accepts every form.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address

# Bytes of an address.
IPV4_LENGTH = 4
IPV6_LENGTH = 16


def format_address(address: bytes) -> str:
    """Return an address as people write it: dotted IPv4, or IPv6 as RFC 5952 says, without brackets.

    Raises ValueError for bytes of another length than 4 and 16.

    Not ``str(IPv6Address(...))``: from Python 3.13 on that writes the end of an IPv4-mapped address as dotted IPv4, and
    the same store must give the same text everywhere.
    """
    if len(address) == IPV4_LENGTH:
        return ".".join(map(str, address))
    groups = _groups(address)
    start, length = _longest_zero_run(groups)
    texts = [f"{group:x}" for group in groups]
    # RFC 5952: the longest run of zeros becomes ``::``, the first of two that are equal, and never a single zero.
    if length < 2:
        return ":".join(texts)
    return ":".join(texts[:start]) + "::" + ":".join(texts[start + length :])


def format_host(address: bytes, port: int) -> str:
    """Return ``ip:port``, an IPv6 address compressed and in brackets; ValueError as for ``format_address``."""
    text = format_address(address)
    return f"{text}:{port}" if len(address) == IPV4_LENGTH else f"[{text}]:{port}"


def parse_address(text: str) -> bytes | None:
    """Return the 4 or 16 bytes of an address, or None if ``text`` is not one; a name is not looked up."""
    try:
        return IPv6Address(text).packed if ":" in text else IPv4Address(text).packed
    except AddressValueError:
        return None


def parse_host(text: str) -> tuple[bytes, int] | None:
    """Return the address and port of ``ip:port``, with or without brackets around IPv6; None for any other text."""
    address_text, _, port_text = text.rpartition(":")
    if address_text.startswith("[") and address_text.endswith("]"):
        address_text = address_text[1:-1]
        if ":" not in address_text:
            return None
    address = parse_address(address_text)
    if address is None or not (port_text.isascii() and port_text.isdecimal()) or len(port_text) > len("65535"):
        return None
    port = int(port_text)
    return (address, port) if port <= 0xFFFF else None


def _groups(address: bytes) -> list[int]:
    """Return the eight groups of an IPv6 address; ValueError for bytes of another length."""
    if len(address) != IPV6_LENGTH:
        raise ValueError(f"an address has {IPV4_LENGTH} or {IPV6_LENGTH} bytes, not {len(address)}")
    return [int.from_bytes(address[at : at + 2], "big") for at in range(0, IPV6_LENGTH, 2)]


def _longest_zero_run(groups: list[int]) -> tuple[int, int]:
    """Return the index and the length of the longest run of zeros, the first of equal ones; (0, 0) without zeros."""
    best = (0, 0)
    start = 0
    for at, group in enumerate(groups):
        if group:
            start = at + 1
        elif at + 1 - start > best[1]:
            best = (start, at + 1 - start)
    return best
