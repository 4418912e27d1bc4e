"""Access control: who may ask for what, by accounts in a file; both generations of upstream.

The file of 4.x is ``plain_acl.yml``: white lists of addresses, and accounts with rights on topics and groups. That of
5.x is JSON with ``users`` and ``acls``, in the form in which mqadmin shows and takes them: a policy allows or denies
actions on resources, the most specific resource decides, and a denial decides between equals.

A few requests are dangerous: they delete, or change settings. They need an administrator, unless a person allows them
to all clients. The commands of the user who runs the server have an account of their own.

Upstream: ``PlainPermissionManager``, ``RemoteAddressStrategyFactory``, ``AclAuthorizationHandler``,
``DefaultAuthenticationHandler``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from rmqtool.broker.one_broker import Asked
from rmqtool.errors import ReadFailed, UsageError
from rmqtool.files.failures import read_failed
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.access import Need, needs, needs_admin, old_needs
from rmqtool.remoting.answers import answer
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.declared import CLUSTER, GROUP
from rmqtool.remoting.headers import Request, Right
from rmqtool.remoting.signature import ACCESS_KEY, is_signed

# The account of the user who runs the server.
OWNER: Final = "rmqtool-owner"
# Delete a topic or a group, change settings of the broker or the name server, delete segments of the log.
DANGEROUS: Final = frozenset({25, 207, 215, 318, 329})
_NEEDS_ADMIN = "this request deletes or changes settings, and needs: rmqtool serve --allow admin, or an admin account"
_ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
_LEAST_KEY = 6
_EXAMPLE = "rmqtool man serve"
_PERMISSIONS: Final = {
    "DENY": frozenset[Right](),
    "PUB": frozenset({Right.PUB}),
    "SUB": frozenset({Right.SUB}),
    "PUB|SUB": frozenset({Right.PUB, Right.SUB}),
    "SUB|PUB": frozenset({Right.PUB, Right.SUB}),
}
_ANYTHING: Final = "*"
# Words of the file in an error of YAML.
_QUOTED: Final = re.compile(r"""(['"]).{2,}\1""")


class Denied(Exception):
    """A request is refused, with the code and remark of its answer."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Rules(Protocol):
    """The accounts of a file."""

    def check(self, command: RemotingCommand, header: Request, host: str) -> None:
        """Raise Denied if the sender of a request may not make it."""


# Addresses.


def address_matcher(pattern: str) -> Callable[[str], bool]:
    """Return whether an address is one of a pattern: parts may be ``*``, ``1-20`` or ``{1,5}``. Raises UsageError."""
    pattern = pattern.strip()
    if not pattern:
        return lambda _host: False
    if pattern in (_ANYTHING, "*.*.*.*", "*:*:*:*:*:*:*:*"):
        return lambda _host: True
    if "," in pattern and "{" not in pattern:
        each = [address_matcher(one) for one in pattern.split(",")]
        return lambda host: any(matches(host) for matches in each)
    mark = ":" if ":" in pattern else "."
    expression = re.escape(mark).join(_part(one) for one in pattern.split(mark))
    try:
        return lambda host, found=re.compile(expression, re.IGNORECASE): bool(found.fullmatch(host))  # type: ignore[misc]
    except re.error as error:
        raise UsageError(
            f"{pattern!r} is not a pattern of addresses", hint="for example 10.1.2.* or 10.1.2.1-9"
        ) from error


def _part(text: str) -> str:
    if text == _ANYTHING:
        return "[0-9a-f]+"
    if text.startswith("{") and text.endswith("}"):
        return "(?:" + "|".join(re.escape(one.strip()) for one in text[1:-1].split(",")) + ")"
    first, hyphen, last = text.partition("-")
    if hyphen and first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= 0xFFFF:
        return "(?:" + "|".join(str(one) for one in range(int(first), int(last) + 1)) + ")"
    return re.escape(text)


# Accounts of 4.x.


@dataclass(frozen=True)
class PlainAccount:
    """An account of ``plain_acl.yml``."""

    access_key: str
    secret_key: str = field(repr=False)
    is_white: Callable[[str], bool]
    admin: bool
    default_topic: frozenset[Right]
    default_group: frozenset[Right]
    topics: Mapping[str, frozenset[Right]]
    groups: Mapping[str, frozenset[Right]]

    def has(self, need: Need) -> bool:
        """Return whether the account has one of the rights of a need."""
        table, usual = (self.groups, self.default_group) if need.kind is GROUP else (self.topics, self.default_topic)
        return bool(table.get(need.name, usual) & need.rights)


class PlainRules:
    """The accounts and white lists of ``plain_acl.yml``."""

    def __init__(self, white: list[Callable[[str], bool]], accounts: Iterable[PlainAccount]) -> None:
        self._white = white
        self._accounts = {one.access_key: one for one in accounts}

    def check(self, command: RemotingCommand, header: Request, host: str) -> None:
        """Raise Denied if the sender of a request may not make it; in upstream's order."""
        if any(matches(host) for matches in self._white):
            return
        key = command.ext.get(ACCESS_KEY)
        if key is None:
            raise _plain("No accessKey is configured")
        account = self._accounts.get(key)
        if account is None:
            raise _plain(f"No acl config for {key}")
        if account.is_white(host):
            return
        if not is_signed(command, account.secret_key):
            raise _plain(f"Check signature failed for accessKey={key}")
        if (needs_admin(header) or command.code in DANGEROUS) and not account.admin:
            raise _plain(f"Need admin permission for request code={command.code}, but accessKey={key} is not")
        if account.admin:
            return
        for need in old_needs(command.code, header, command.body):
            if not account.has(need):
                kind = "group" if need.kind is GROUP else "topic"
                raise _plain(f"No default permission for {kind}:{need.name}")


def _plain(text: str) -> Denied:
    return Denied(ResponseCode.SYSTEM_ERROR, f"{_ACL_EXCEPTION}: {text}")


def read_plain(text: str) -> PlainRules:
    """Read ``plain_acl.yml``. Raises UsageError."""
    found = parse_yaml(text)
    if not isinstance(found, dict) or not isinstance(found.get("accounts"), list):
        raise UsageError("this is not a plain_acl.yml: it has no list of accounts", hint=_EXAMPLE)
    addresses = found.get("globalWhiteRemoteAddresses") or []
    if not isinstance(addresses, list):
        # Each character of a text would be a pattern, and a "*" in it would let everybody in.
        raise UsageError("globalWhiteRemoteAddresses is not a list", hint=_EXAMPLE)
    white = [address_matcher(str(one)) for one in addresses]
    return PlainRules(white, [_account(one) for one in found["accounts"]])


def _account(given: Any) -> PlainAccount:
    if not isinstance(given, dict):
        raise UsageError("an account of plain_acl.yml is not a mapping", hint=_EXAMPLE)
    key, secret = str(given.get("accessKey") or ""), str(given.get("secretKey") or "")
    if len(key) <= _LEAST_KEY or len(secret) <= _LEAST_KEY:
        raise UsageError(f"accessKey and secretKey must be longer than {_LEAST_KEY} characters: {key}", hint=_EXAMPLE)

    return PlainAccount(
        key,
        secret,
        address_matcher(str(given.get("whiteRemoteAddress") or "")),
        str(given.get("admin")).lower() == "true",
        _permission(given.get("defaultTopicPerm") or "DENY"),
        _permission(given.get("defaultGroupPerm") or "DENY"),
        _permissions(given.get("topicPerms")),
        _permissions(given.get("groupPerms")),
    )


def _permissions(given: Any) -> dict[str, frozenset[Right]]:
    parts = [str(one).partition("=") for one in given or ()]
    return {name.strip(): _permission(perm) for name, _, perm in parts}


def _permission(text: Any) -> frozenset[Right]:
    found = _PERMISSIONS.get(str(text).strip())
    if found is None:
        raise UsageError(f"{text!r} is not a permission of plain_acl.yml", hint=", ".join(_PERMISSIONS))
    return found


# Users and policies of 5.x.


class Entry(NamedTuple):
    """One line of a policy: who may do what with a resource, and from where."""

    kind: str
    name: str
    actions: frozenset[str]
    is_source: Callable[[str], bool]
    allows: bool
    is_default: bool

    def rank(self) -> tuple[bool, bool, bool, int, bool]:
        """Return how specific the resource is; the greatest of the matching entries decides."""
        is_whole = not self.name.endswith(_ANYTHING)
        return not self.is_default, self.kind != _ANYTHING, is_whole, len(self.name), not self.allows

    def matches(self, kind: str, name: str, host: str) -> bool:
        """Return whether the entry is about a resource."""
        if self.kind not in (_ANYTHING, kind) or not self.is_source(host):
            return False
        return name.startswith(self.name[:-1]) if self.name.endswith(_ANYTHING) else name == self.name


class PolicyRules:
    """The users and policies of 5.x."""

    def __init__(self, users: Iterable[Mapping[str, Any]], acls: Iterable[Mapping[str, Any]], cluster: str) -> None:
        self._users = {str(user["username"]): user for user in users}
        self._entries = {str(acl["subject"]): list(_entries(acl)) for acl in acls}
        self._cluster = cluster

    def check(self, command: RemotingCommand, header: Request, host: str) -> None:
        """Raise Denied if the sender of a request may not make it."""
        name = command.ext.get(ACCESS_KEY)
        if not name:
            raise _denied("username cannot be null.")
        user = self._users.get(name)
        if user is None:
            raise _denied(f"User:{name} is not found.")
        if str(user.get("userStatus") or "enable").lower() == "disable":
            raise _denied(f"User:{name} is disabled.")
        password = str(user.get("password") or "")
        # Anybody can sign with an empty key.
        if not password or not is_signed(command, password):
            raise _denied("check signature failed.")
        if str(user.get("userType") or "").lower() == "super":
            return
        wanted = needs(header, command.body)
        if command.code in DANGEROUS and not wanted:
            wanted = [Need(CLUSTER, "", frozenset({Right.UPDATE}))]
        for need in wanted:
            self._authorize(f"User:{name}", need, host)

    def _authorize(self, subject: str, need: Need, host: str) -> None:
        kind, name = need.kind.name.capitalize(), need.name or self._cluster
        rights = {right.value for right in need.rights} | {"ALL"}
        entries = [one for one in self._entries.get(subject, ()) if one.matches(kind, name, host)]
        found = [one for one in entries if one.actions & rights]
        resource = f"{subject} has no permission to access {kind}:{name} from {host}, "
        if not found:
            raise _denied(resource + "no matched policies.")
        if not max(found, key=Entry.rank).allows:
            raise _denied(resource + "the decision is deny.")


def _denied(text: str) -> Denied:
    return Denied(ResponseCode.NO_PERMISSION, text)


def _entries(acl: Mapping[str, Any]) -> Iterable[Entry]:
    for policy in acl.get("policies") or ():
        is_default = str(policy.get("policyType") or "").lower() == "default"
        for one in policy.get("entries") or ():
            given = one["resource"]
            for resource in given if isinstance(given, list) else [given]:
                kind, colon, name = str(resource).partition(":")
                sources = one.get("sourceIps") or ()
                actions = one.get("actions") or ()
                yield Entry(
                    kind.capitalize() if colon else _ANYTHING,
                    name if colon else _ANYTHING,
                    frozenset(str(action).upper() for action in _listed(actions)),
                    _any_of([address_matcher(str(source)) for source in _listed(sources)]),
                    str(one.get("decision") or "").lower() == "allow",
                    is_default,
                )


def _listed(given: Any) -> list[Any]:
    return given.split(",") if isinstance(given, str) else list(given)


def _any_of(matchers: list[Callable[[str], bool]]) -> Callable[[str], bool]:
    return lambda host: not matchers or any(matches(host) for matches in matchers)


def read_policies(text: str, cluster: str) -> PolicyRules:
    """Read users and policies. Raises UsageError."""
    try:
        found = json.loads(text)
        return PolicyRules(found["users"], found.get("acls") or (), cluster)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError("this is not a file of users and acls", hint=_EXAMPLE) from error


def parse_yaml(text: str) -> Any:
    """Return the value of a text in YAML. Raises UsageError."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        # The text of the error shows the line, which can hold a secret, and its problem quotes words of it.
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "it cannot be read"
        problem = _QUOTED.sub("...", problem)
        place = "" if mark is None else f", line {mark.line + 1}"
        raise UsageError(f"this is not YAML{place}: {problem}", hint=_EXAMPLE) from None


# The gate.


class Gate:
    """Judges each request of a broker before it is answered. Without ``rules`` only dangerous requests are refused."""

    def __init__(self, path: str | None = None, *, secret: str | None = None, allows_admin: bool = False) -> None:
        self._path = path
        self._secret = secret
        self._allows_admin = allows_admin
        self._cluster = ""
        self._seen: tuple[int, int] | None = None
        self.rules: Rules | None = None

    def begin(self, cluster: str) -> None:
        """Read the file. Raises StoreError and UsageError."""
        self._cluster = cluster
        self.look()

    def look(self) -> bool:
        """Read the file if it has changed; return whether it has. A file that is wrong changes nothing."""
        if self._path is None:
            return False
        try:
            status = os.stat(self._path)
            seen = status.st_mtime_ns, status.st_size
            if seen == self._seen:
                return False
            with open(self._path, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            raise read_failed("read", self._path, error) from error
        except UnicodeDecodeError as error:
            raise ReadFailed(f"{self._path} is not text", file=self._path, hint=_EXAMPLE) from error
        self._seen = seen
        is_json = text.lstrip().startswith("{")
        try:
            self.rules = read_policies(text, self._cluster) if is_json else read_plain(text)
        except UsageError as error:
            raise UsageError(f"{self._path}: {error.message}", hint=error.hint) from error
        return True

    @property
    def is_open(self) -> bool:
        """Whether every request passes, so that none needs to be judged."""
        return self.rules is None and self._allows_admin

    def refuse(self, asked: Asked) -> RemotingCommand | None:
        """Return the answer that refuses a request, None if it is allowed."""
        command = asked.command
        if command.ext.get(ACCESS_KEY) == OWNER:
            is_owner = self._secret is not None and is_signed(command, self._secret)
            return None if is_owner else answer(command, ResponseCode.NO_PERMISSION, "check signature failed.")
        if self.rules is None:
            if command.code not in DANGEROUS or self._allows_admin:
                return None
            return answer(command, ResponseCode.NO_PERMISSION, _NEEDS_ADMIN)
        try:
            self.rules.check(command, asked.header, asked.client.rpartition(":")[0].strip("[]"))
        except Denied as denied:
            return answer(command, denied.code, denied.remark)
        return None
