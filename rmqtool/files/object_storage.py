"""Object storage: addresses of objects, the connection to each store of them, and its errors.

An address is ``s3://BUCKET/KEY``, ``gs://BUCKET/KEY``, ``abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`` or
``hdfs://HOST:PORT/PATH``. Credentials are found as the SDKs find them: variables of the environment, profiles, the role
of the machine. They are never part of an address, and an error shows only the code of an answer.

A request that fails in passing is repeated: no connection, a cut answer, a server that is busy. A refusal is an error
at once.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeVar

from rmqtool.errors import FileMissing, OptionalMissing, RemoteError, RmqtoolError, StoreError, UsageError

# Seconds before each further attempt, after those of the SDK.
DELAYS = (0.2, 0.5, 1.0, 2.0, 4.0)
_CONNECT_TIMEOUT = 5.0
_REQUEST_TIMEOUT = 30.0

_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs", "hdfs": "hdfs"}
_ADDRESS = re.compile(rf"({'|'.join(_SCHEMES)})://([^/]*)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_SECRET = re.compile(r"[?&][a-z_]*(?:key|secret|token|password|sig|signature)=", re.IGNORECASE)
_CODE = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d+)\))?|HTTP status(?: code)?:? (\d+)|\b(\d{3}) [A-Z]")
_HIDDEN = re.compile(r"\?\S*|https?://\S+")
# Answers that will be the same at the next attempt.
_FOR_GOOD = re.compile(
    r"NO_SUCH|ACCESS_DENIED|INVALID_|SIGNATURE|MISSING_AUTH|UNRECOGNIZED_CLIENT|EXPIRED|NOT_FOUND"
    r"|HTTP status 4(?!08|29)|PERMISSION_DENIED|UNAUTHENTICATED|ANONYMOUS"
)
_REFUSED = re.compile(
    r"ACCESS_DENIED|SIGNATURE|INVALID_ACCESS|EXPIRED|MISSING_AUTH|UNRECOGNIZED|HTTP status 40[13]|PERM|AUTH"
)
Result = TypeVar("Result")


class Address(NamedTuple):
    """The place of an object, or of all objects whose names begin with it; ``scheme`` in its usual spelling."""

    scheme: str
    authority: str
    key: str

    @property
    def path(self) -> str:
        """The path as pyarrow spells it."""
        if self.scheme == "hdfs":
            return f"/{self.key}"
        container = self.authority.partition("@")[0]
        return f"{container}/{self.key}" if self.key else container

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}/{self.key}".rstrip("/")


def is_object_address(text: str) -> bool:
    """Return whether a path is on object storage."""
    return "://" in text and _ADDRESS.fullmatch(text) is not None


def parse_address(text: str) -> Address:
    """Return the parts of an address; raise UsageError for one without a bucket, or with credentials in it."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise UsageError(f"{text} is not an address of object storage", hint="for example s3://bucket/store")
    scheme, authority, key = _SCHEMES[found[1].lower()], found[2], (found[3] or "").strip("/")
    owner = authority.rpartition("@")[0]
    if ":" in owner or (owner and scheme != "abfs") or _SECRET.search(key):
        raise UsageError(
            f"credentials do not belong into an address ({scheme}://...): it is shown and logged",
            hint="give them as the SDK takes them: variables of the environment, a profile, the role of the machine",
        )
    if not authority and scheme != "hdfs":
        raise UsageError(f"{text} names no bucket", hint=f"for example {scheme}://bucket/store")
    return Address(scheme, authority, key)


def refuse_writing(address: str) -> NoReturn:
    """Raise UsageError: a store on object storage is only read."""
    raise UsageError(
        f"{parse_address(address)} is on object storage, where a store is only read",
        hint="copy it to a disk first: rmqtool copy STORE DIR",
    )


def storage_of(text: str) -> tuple[Any, str]:
    """Return pyarrow's file system for an address, and the path in it."""
    address = parse_address(text)
    return connect(address), address.path


def connect(address: Address) -> Any:
    """Return pyarrow's file system for an address; one connection for all objects of a bucket."""
    try:
        return _connect(address.scheme, address.authority, settings())
    except ImportError as error:
        raise OptionalMissing(
            f"this pyarrow was built without {address.scheme}://", hint="install pyarrow from PyPI"
        ) from error
    except OSError as error:
        if address.scheme == "hdfs":
            raise OptionalMissing(
                "reading hdfs:// needs the Hadoop client library libhdfs and Java",
                hint="set HADOOP_HOME, JAVA_HOME and CLASSPATH as Hadoop's documentation of libhdfs says",
            ) from error
        raise _failed("connect to", str(address), error) from error
    except ValueError as error:
        raise UsageError(
            f"{address} is not a complete address: {_HIDDEN.sub('', str(error))}",
            hint="s3://BUCKET/KEY, gs://BUCKET/KEY, abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY, hdfs://HOST/KEY",
        ) from error


def endpoint() -> str | None:
    """Return the server to use instead of Amazon's, if the environment names one."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def region() -> str | None:
    """Return the region that the environment names."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def settings() -> tuple[str | None, ...]:
    """Return what the environment says now about servers and accounts."""
    accounts = (
        os.environ.get("AWS_PROFILE"),
        os.environ.get("AWS_ACCESS_KEY_ID"),
        os.environ.get("AZURE_STORAGE_ACCOUNT"),
        os.environ.get("STORAGE_EMULATOR_HOST"),
    )
    return (endpoint(), region(), *accounts)


@lru_cache(maxsize=16)
def _connect(scheme: str, authority: str, _settings: tuple[str | None, ...]) -> Any:
    from pyarrow import fs

    if scheme == "s3":
        return _connect_s3(authority)
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if scheme == "gs" and emulator:
        kind, _, host = emulator.rpartition("://")
        return fs.GcsFileSystem(anonymous=True, scheme=kind or "http", endpoint_override=host)
    if scheme == "abfs" and "@" not in authority:
        return fs.AzureFileSystem(os.environ.get("AZURE_STORAGE_ACCOUNT", ""))
    return fs.FileSystem.from_uri(f"{scheme}://{authority}/")[0]


def _connect_s3(bucket: str) -> Any:
    from pyarrow import fs

    given: dict[str, Any] = {}
    server, place = endpoint(), region()
    if server is not None:
        scheme, _, host = server.rpartition("://")
        given |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
    if place is None and server is None:
        place = fs.resolve_s3_region(bucket)
    if place is not None:
        given["region"] = place
    return fs.S3FileSystem(connect_timeout=_CONNECT_TIMEOUT, request_timeout=_REQUEST_TIMEOUT, **given)


def attempt(work: Callable[[], Result], operation: str, shown: str) -> Result:
    """Return what ``work`` returns; repeat it after an error in passing, and raise one that says what to do.

    ``operation`` is a verb, ``shown`` the address for the error.
    """
    for delay in (*DELAYS, None):
        try:
            return work()
        except OSError as error:
            if delay is None or error.errno is not None or _FOR_GOOD.search(str(error)):
                raise _failed(operation, shown, error) from error
        time.sleep(delay)
    raise AssertionError("the last attempt returns or raises")


def _failed(operation: str, shown: str, error: OSError) -> RmqtoolError:
    """Return the error for a failed request."""
    text = str(error)
    if isinstance(error, FileNotFoundError) or "NO_SUCH_KEY" in text:
        return FileMissing(
            f"{shown} does not exist", file=shown, hint="it may have been removed: run the command again"
        )
    if "NO_SUCH_BUCKET" in text:
        return StoreError(f"cannot {operation} {shown}: there is no such bucket", file=shown, hint="check its name")
    reason = reason_of(text)
    if isinstance(error, PermissionError) or _REFUSED.search(text):
        return RemoteError(
            f"cannot {operation} {shown}: the server refuses it ({reason})",
            file=shown,
            hint="check the credentials of the SDK and the rights of their owner (AWS_PROFILE, AWS_ACCESS_KEY_ID, ...)",
        )
    return RemoteError(
        f"cannot {operation} {shown}: {reason}",
        file=shown,
        hint="check the network and the endpoint (AWS_ENDPOINT_URL, AWS_REGION), then run the command again",
    )


def reason_of(text: str) -> str:
    """Return the code of an answer in words. The rest of an answer may repeat parts of the credentials."""
    found = _CODE.search(text)
    if found is None:
        return _HIDDEN.sub("", text.splitlines()[0] if text else "no reason is given")[:120].strip()
    name = (found[1] or "").replace("_", " ").lower()
    status = found[2] or found[3] or found[4]
    if name == "network connection":
        return "the server does not answer"
    return f"{name} (HTTP status {status})" if name and status else name or f"HTTP status {status}"
