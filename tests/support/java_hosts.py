"""Hosts as Java's classes spell them: what real brokers and decoders printed is compared with this."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def java_host(address: bytes, port: int, *, brackets: bool) -> str:
    """``getHostAddress`` and the port: IPv6 has all its groups, a mapped IPv4 address is IPv4; 5.x has brackets."""
    found = ip_address(address)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        text = ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))
        return f"[{text}]:{port}" if brackets else f"{text}:{port}"
    return f"{found.ipv4_mapped if isinstance(found, IPv6Address) else found}:{port}"


def padded_address(address: bytes) -> str:
    """An address as ``MessageClientIDSetter`` spells it: IPv6 as eight groups of four digits."""
    return ip_address(address).exploded
