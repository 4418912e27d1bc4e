"""Signatures of requests; both generations of access control use the same.

The signed bytes are the values of all fields except the signature itself, in the order of their names and without
separators, followed by the body. A client adds its ``AccessKey`` first, so that it is signed too. Answers, and the
requests of a broker, are not signed.

Versions disagree about one field, ``_UNIQUE_KEY_QUERY``. Clients from 4.9.4 on sign it, older ones do not; a 4.9 broker
leaves it out and so refuses the later clients, a 5.x broker goes by the client's version. Both forms are accepted here.

Upstream: ``AclClientRPCHook``, ``AclUtils``, ``AclSigner``.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from typing import Final

from rmqtool.formats.java import encode_text
from rmqtool.remoting.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105  (the name of a field)
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"

# The newest client that signs a unique key query without that field: V4_9_3.
LAST_WITHOUT_QUERY: Final = 399


def signed_content(ext: Mapping[str, str], body: bytes, *, with_query: bool = True) -> bytes:
    """Return the bytes that are signed."""
    names = sorted(ext) if "".join(ext).isascii() else sorted(ext, key=_java_order)
    left_out = {SIGNATURE} if with_query else {SIGNATURE, UNIQUE_KEY_QUERY}
    return encode_text("".join(ext[name] for name in names if name not in left_out)) + body


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def signature(secret_key: str, content: bytes) -> str:
    """Return the signature of some content."""
    return b64encode(hmac.digest(encode_text(secret_key), content, "sha1")).decode("ascii")


def sign(command: RemotingCommand, access_key: str, secret_key: str) -> RemotingCommand:
    """Return a request with the key of its sender and a signature, as clients from 4.9.4 on sign."""
    ext = {**command.ext, ACCESS_KEY: access_key}
    ext[SIGNATURE] = signature(secret_key, signed_content(ext, command.body))
    return command.replaced(ext_fields=ext)


def is_signed(command: RemotingCommand, secret_key: str) -> bool:
    """Whether the request's signature is that of the key; how long it takes does not depend on where they differ."""
    given = command.ext.get(SIGNATURE)
    if given is None:
        return False
    forms = (True, False) if UNIQUE_KEY_QUERY in command.ext else (True,)
    contents = [signed_content(command.ext, command.body, with_query=form) for form in forms]
    # All forms are computed and compared: returning early would leak the time of the comparison.
    matches = [hmac.compare_digest(signature(secret_key, content).encode(), encode_text(given)) for content in contents]
    return any(matches)
