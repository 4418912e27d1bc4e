"""A cluster by its address, and the keys that open it.

``rocketmq://HOST:PORT[,HOST:PORT...][/BROKER]`` names the name servers, and one broker where the others are to be left
out. Keys are never part of it: a command line can be read by every user of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.errors import StoreError, UsageError

SCHEME = "rocketmq://"
NAME_SERVER_PORT = 9876
ACCESS_KEY_VARIABLE = "RMQTOOL_ACCESS_KEY"
SECRET_KEY_VARIABLE = "RMQTOOL_SECRET_KEY"  # noqa: S105  (a name)

_EXAMPLE = "rocketmq://127.0.0.1:9876"
_HIGHEST_PORT = 65535
# Names in the file of keys, as mqadmin's ``tools.yml`` and the Java client have them.
_NAMES = {"accesskey": "access_key", "secretkey": "secret_key", "securitytoken": "security_token"}


def is_cluster(text: object) -> bool:
    """Whether a STORE is the address of a cluster."""
    return isinstance(text, str) and text.startswith(SCHEME)


class ClusterAddress(NamedTuple):
    """The name servers of a cluster, as ``host:port``, and the one broker that is meant."""

    names: tuple[str, ...]
    broker: str | None = None

    def __str__(self) -> str:
        return SCHEME + ",".join(self.names) + (f"/{self.broker}" if self.broker else "")


def parse_cluster(text: str) -> ClusterAddress:
    """Return the cluster that an address names. Raises UsageError."""
    if not is_cluster(text):
        raise UsageError(f"{text!r} is not the address of a cluster", hint=f"as in {_EXAMPLE}")
    servers, _, broker = text.removeprefix(SCHEME).partition("/")
    if "@" in servers:
        raise UsageError(
            "the address of a cluster has no user or password in it: other users of the machine can read it",
            hint=f"--credentials FILE, or {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} in the environment",
        )
    names = tuple(_name_server(part.strip()) for part in servers.replace(";", ",").split(",") if part.strip())
    if not names:
        raise UsageError(f"{text} names no name server", hint=f"as in {_EXAMPLE}")
    return ClusterAddress(names, broker.strip("/") or None)


def _name_server(text: str) -> str:
    host, port = split_address(text if has_port(text) else f"{text}:{NAME_SERVER_PORT}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def has_port(text: str) -> bool:
    """Whether an address ends with a port."""
    return ":" in text.rpartition("]")[2]


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; an IPv6 address may be in brackets. Raises UsageError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _HIGHEST_PORT:
        raise UsageError(f"{text!r} is not an address", hint="as in 127.0.0.1:9876")
    return host, int(port)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of a user of the cluster; the secret one is never shown."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def read_credentials(path: str | os.PathLike[str]) -> Credentials:
    """Return the keys of a file with lines ``accessKey=...``, ``secretKey=...``. Raises StoreError and UsageError."""
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        hint = f"create it with the lines accessKey=... and secretKey=..., or set {ACCESS_KEY_VARIABLE}"
        raise StoreError(f"cannot read the credentials in {name}: {reason}", file=name, hint=hint) from None
    found: dict[str, str] = {}
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, separator, value = line.partition("=" if "=" in line else ":")
        known = _NAMES.get(key.strip().lower())
        if known and separator:
            found[known] = value.strip().strip("\"'")
    if "access_key" not in found or "secret_key" not in found:
        raise UsageError(
            f"{name} has no accessKey and secretKey", hint="write a line accessKey=... and a line secretKey=..."
        )
    return Credentials(**found)


def find_credentials(
    path: str | os.PathLike[str] | None, environment: Mapping[str, str] = os.environ
) -> Credentials | None:
    """Return the keys of a file, else those of the environment, else None."""
    if path is not None:
        return read_credentials(path)
    access_key = environment.get(ACCESS_KEY_VARIABLE)
    secret_key = environment.get(SECRET_KEY_VARIABLE)
    if access_key and secret_key:
        return Credentials(access_key, secret_key)
    if access_key or secret_key:
        given, missing = ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
        if secret_key:
            given, missing = missing, given
        raise UsageError(f"{given} is set and {missing} is not", hint=f"export {missing}=...")
    return None
