"""The rights that a request needs, derived from the marks of the table.

Access control 2.0 (5.x) wants a right on each topic or group that a field names, or on the cluster. That of 4.x wants
one of two rights on topics and groups of a few requests, an administrator for a few others, and only a valid signature
for the rest. Both treat a retry topic as the group that it belongs to. For codes 14 and 15 version 5.3 checks a topic
with the name of the group; here the group is checked, which is what it means.

Upstream: ``DefaultAuthorizationContextBuilder``, ``PlainAccessValidator``, ``Permission``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rmqtool.formats.topics import RETRY_PREFIX
from rmqtool.remoting.bodies.clients import HeartbeatData, LockBatchRequestBody
from rmqtool.remoting.declared import CLUSTER, GROUP, TOPIC, Resource
from rmqtool.remoting.headers import OldRight, Request, Right

# 4.x checks rights on a topic for these codes only; batches and replies need only a signature.
_OLD_SENDS: Final = frozenset({10, 310})
_ANY_SUB: Final = frozenset({Right.SUB})


class Need(NamedTuple):
    """One of ``rights`` on a resource. A cluster has no name in a request."""

    kind: Resource
    name: str
    rights: frozenset[Right]


def needs(request: Request, body: bytes = b"") -> list[Need]:
    """Return the needs of access control 2.0. Raises BodyError if they depend on a body that cannot be read."""
    in_body = list(_needs_in_body(request, body))
    if in_body:
        return in_body
    rights = frozenset(request.rights)
    found = [
        _need(kind, name, rights, sends=Right.PUB in rights)
        for kind, names in _named(request)
        for name in names
        # The group of a pull is checked itself; its retry topic would be the same check again.
        if not (kind is TOPIC and name.startswith(RETRY_PREFIX) and _has_group(request))
    ]
    if not found and request.scope is CLUSTER:
        found.append(Need(CLUSTER, "", rights))
    return found


def old_needs(code: int, request: Request, body: bytes = b"") -> list[Need]:
    """Return the needs of access control 1.0; for requests of administrators see ``needs_admin``."""
    if request.old_right not in (OldRight.PUB, OldRight.SUB):
        return []
    if request.old_right is OldRight.PUB and code not in _OLD_SENDS:
        return []
    in_body = list(_needs_in_body(request, body))
    if in_body:
        return in_body
    rights = frozenset({Right[request.old_right.name]})
    return [
        _need(kind, name, rights, sends=request.old_right is OldRight.PUB)
        for kind, names in _named(request, old=True)
        for name in names
    ]


def needs_admin(request: Request) -> bool:
    """Whether 4.x accepts the request only from an administrator."""
    return request.old_right is OldRight.ADMIN


def _named(request: Request, *, old: bool = False) -> Iterator[tuple[Resource, list[str]]]:
    for name, declared in request.fields.items():
        value = getattr(request, name)
        if declared.acl is not None and value and not (old and declared.acl_since):
            yield declared.acl, value.split(declared.splitter) if declared.splitter else [value]


def _has_group(request: Request) -> bool:
    return any(declared.acl is GROUP and getattr(request, name) for name, declared in request.fields.items())


def _need(kind: Resource, name: str, rights: frozenset[Right], *, sends: bool) -> Need:
    """Return the need for a name: a retry topic belongs to its group, and only consumers send to it."""
    if kind is TOPIC and name.startswith(RETRY_PREFIX):
        return Need(GROUP, name.removeprefix(RETRY_PREFIX), _ANY_SUB if sends else rights)
    return Need(kind, name, rights)


def _needs_in_body(request: Request, body: bytes) -> Iterator[Need]:
    """Yield the needs for groups and topics in the body of a heartbeat or a lock."""
    if request.body is HeartbeatData:
        for consumer in HeartbeatData.decode(body).consumer_data_set or ():
            yield Need(GROUP, consumer.group_name, _ANY_SUB)
            for subscription in consumer.subscription_data_set or ():
                if not subscription.topic.startswith(RETRY_PREFIX):
                    yield Need(TOPIC, subscription.topic, _ANY_SUB)
    elif isinstance(request.body, type) and issubclass(request.body, LockBatchRequestBody):
        lock = request.body.decode(body)
        yield Need(GROUP, lock.consumer_group, _ANY_SUB)
        for topic in dict.fromkeys(queue.topic for queue in lock.mq_set):
            if not topic.startswith(RETRY_PREFIX):
                yield Need(TOPIC, topic, _ANY_SUB)
