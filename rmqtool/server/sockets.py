"""The sockets of a server: the name server's, the broker's, and the second one of the broker, two ports below."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from typing import NamedTuple

from rmqtool.errors import AddressTaken, UsageError
from rmqtool.formats.hosts import format_host, parse_address

# A broker takes everything but pulls at the port so far below its own. upstream: MixAll.brokerVIPChannel
VIP_BELOW = 2
_BACKLOG = 1024
_TRIES = 16
_MOST_PORT = 65_535


class Address(NamedTuple):
    """A host and a port, as a person names them."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``host:port``."""
        raw = parse_address(self.host)
        return f"{self.host}:{self.port}" if raw is None else format_host(raw, self.port)


class Sockets(NamedTuple):
    """The sockets of a server.

    ``vip`` may be missing: the port two below the broker's is not always free. ``slaves`` is for replication.
    """

    names: socket.socket
    broker: socket.socket
    vip: socket.socket | None
    slaves: socket.socket | None = None

    def close(self) -> None:
        """Close them."""
        for one in self:
            if one is not None:
                one.close()


def parse_listen(text: str, option: str, port: int) -> Address:
    """Return the address that an option names: ``HOST:PORT``, ``HOST`` or ``:PORT``."""
    host, colon, number = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, number = text, str(port)
    host = host.strip("[]") or "127.0.0.1"
    if not number.isdecimal() or not 0 <= int(number) <= _MOST_PORT:
        raise UsageError(f"{text!r} is not an address", hint=f"for example: {option} 127.0.0.1:{port}")
    return Address(host, int(number))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bound(found: socket.socket) -> Address:
    """Return the address that a socket is bound to."""
    name = found.getsockname()
    return Address(name[0], name[1])


def listen(names: Address, broker: Address, slaves: Address | None = None) -> Sockets:
    """Take the ports, or raise AddressTaken."""
    with contextlib.ExitStack() as stack:
        names_socket = stack.enter_context(_bind(names))
        slaves_socket = None if slaves is None else stack.enter_context(_bind(slaves))
        broker_socket, vip = _bind_broker(broker)
        stack.pop_all()
        return Sockets(names_socket, broker_socket, vip, slaves_socket)


def _bind_broker(address: Address) -> tuple[socket.socket, socket.socket | None]:
    """Return the broker's socket and the second one; with port 0 ports are looked for that are both free."""
    for _ in range(_TRIES if not address.port else 1):
        first = _bind(address)
        try:
            return first, _bind(Address(address.host, first.getsockname()[1] - VIP_BELOW))
        except (AddressTaken, OverflowError):
            if address.port:
                return first, None
        first.close()
    return _bind(address), None


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address.host, address.port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise _not_bound(address, error) from error
    found.setblocking(False)
    return found


def _not_bound(address: Address, error: OSError) -> AddressTaken:
    if error.errno == errno.EADDRINUSE:
        hint = "stop what uses it, or use another: --listen 127.0.0.1:0 --names 127.0.0.1:0 takes free ports"
        return AddressTaken(f"{address} is in use: another program listens there", hint=hint)
    reason = error.strerror or str(error)
    return AddressTaken(f"{address} cannot be listened to: {reason}", hint="name an address of this machine")
