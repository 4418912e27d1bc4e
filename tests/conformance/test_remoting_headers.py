"""The declared headers are those of the real classes, by reflection over the published jars, version by version.

Every header class of a version is either declared, and then equal field by field, or named in ``NOT_DECLARED`` with the
reason. Codes, languages and version numbers are compared too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.formats.response_codes import codes_of
from rmqtool.remoting.command import Language, version_name
from rmqtool.remoting.declared import Field, show_text
from rmqtool.remoting.headers import Header, Request
from rmqtool.remoting.requests import REQUESTS
from tests.conformance.remoting_classes import class_path

PROGRAM = Path(__file__).parent / "java" / "HeaderClasses.java"

# Header classes and fields compared, and rows of the tables of codes; a run with fewer fails.
COUNTS = {
    "4.9.7": {"headers": 65, "fields": 211, "rights": 0, "requests": 79, "responses": 37, "versions": 399},
    "5.3.3": {"headers": 99, "fields": 555, "rights": 65, "requests": 116, "responses": 66, "versions": 399},
    "5.4.0": {"headers": 102, "fields": 565, "rights": 67, "requests": 116, "responses": 66, "versions": 399},
    "5.5.0": {"headers": 102, "fields": 572, "rights": 67, "requests": 116, "responses": 68, "versions": 399},
}

CONTROLLER = "only brokers and controllers speak it, among themselves"
NOBODY = "no request carries it"
OLD = "gone in 5.x; no client sends it"
LITE = "lite topics of 5.5, which only its proxy asks for"


def named(names: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


NOT_DECLARED = {
    **named(
        "AlterSyncStateSetRequestHeader AlterSyncStateSetResponseHeader ApplyBrokerIdRequestHeader "
        "ApplyBrokerIdResponseHeader CleanControllerBrokerDataRequestHeader ElectMasterRequestHeader "
        "ElectMasterResponseHeader GetMetaDataResponseHeader GetNextBrokerIdRequestHeader "
        "GetNextBrokerIdResponseHeader GetReplicaInfoRequestHeader GetReplicaInfoResponseHeader "
        "NotifyBrokerRoleChangedRequestHeader NotifyMinBrokerIdChangeRequestHeader "
        "RegisterBrokerToControllerRequestHeader RegisterBrokerToControllerResponseHeader AddBrokerRequestHeader "
        "RemoveBrokerRequestHeader ExchangeHAInfoRequestHeader ExchangeHAInfoResponseHeader "
        "ResetMasterFlushOffsetHeader",
        CONTROLLER,
    ),
    **named(
        "CheckTransactionStateResponseHeader EndTransactionResponseHeader GetConsumerListByGroupResponseHeader "
        "InitConsumerOffsetRequestHeader RegisterOrderTopicRequestHeader StatisticsMessagesRequestHeader "
        "UnregisterClientResponseHeader UpdateConsumerOffsetResponseHeader ViewMessageResponseHeader",
        NOBODY,
    ),
    **named(
        "CreateAccessConfigRequestHeader DeleteAccessConfigRequestHeader GetBrokerAclConfigResponseHeader "
        "GetBrokerClusterAclConfigResponseHeader RegisterFilterServerRequestHeader "
        "RegisterFilterServerResponseHeader RegisterMessageFilterClassRequestHeader "
        "UpdateGlobalWhiteAddrsConfigRequestHeader",
        OLD,
    ),
    **named(
        "GetLiteClientInfoRequestHeader GetLiteGroupInfoRequestHeader GetLiteTopicInfoRequestHeader "
        "GetParentTopicInfoRequestHeader LiteSubscriptionCtlRequestHeader NotifyUnsubscribeLiteRequestHeader "
        "PopLiteMessageRequestHeader PopLiteMessageResponseHeader TriggerLiteDispatchRequestHeader",
        LITE,
    ),
    "CheckRocksdbCqWriteProgressRequestHeader": "a tool's question about a migration",
    "ExportRocksDBConfigToJsonRequestHeader": "a tool's question about files of the broker",
}
# The broker grants these by code of its own, more than the mark on the class says.
GRANTED_BY_CODE = {10, 11, 12, 14, 15, 34, 35, 36, 37, 38, 41, 42, 105, 310}

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("version", COUNTS)]


class JavaField(NamedTuple):
    """A field of a real class."""

    name: str
    java: str
    needed: bool
    default: str | None
    resource: str


class JavaHeader(NamedTuple):
    """A real class."""

    name: str
    fast: bool
    action: tuple[str, ...]
    fields: frozenset[JavaField]


class Reflected(NamedTuple):
    """What a version has."""

    headers: dict[str, JavaHeader]
    constants: dict[str, dict[str, int]]


def reflect(version: str, folder: Path) -> Reflected:
    """Return what the real classes of ``version`` are."""
    jars = class_path(version)
    out = folder / "classes.tsv"
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(PROGRAM)], check=True)
    command = ["java", "-cp", f"{folder}{os.pathsep}{jars}", "HeaderClasses", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    headers, constants = {}, defaultdict[str, dict[str, int]](dict)
    for line in out.read_text(encoding="utf-8").splitlines():
        kind, name, *words = line.split("\t")
        if kind == "constant":
            constants[name][words[0]] = int(words[1])
        else:
            headers[name] = JavaHeader(
                name, words[0] == "fast", tuple(words[1].split()), frozenset(map(java_field, words[2:]))
            )
    return Reflected(headers, constants)


def java_field(word: str) -> JavaField:
    name, java, needed, default, resource, _ = word.split(" ")
    value = None if default == "null" else default.removeprefix("=")
    return JavaField(name, java, needed == "needed", value, "" if resource == "-" else resource)


def all_headers(base: type[Header] = Header) -> Iterator[type[Header]]:
    for header in base.__subclasses__():
        if header.__module__.startswith("rmqtool."):
            yield header
            yield from all_headers(header)


def expected(header: type[Header], version: str, *, short: bool) -> frozenset[JavaField]:
    """Return the fields that the declaration says a version has."""
    release = tuple(map(int, version.split(".")))
    found = set()
    for field in header.fields.values():
        # What only travels beside the fields of the class: traces of a send, hooks.
        if field.wire.isupper() or not field.is_in(release):
            continue
        found.add(java_row(field, release, field.short if short and field.short else field.wire))
        if short and field.wire == "bname":
            found.add(java_row(field, release, "bname"))
    return frozenset(found)


def java_row(field: Field, release: tuple[int, ...], name: str) -> JavaField:
    java = {"bool": "boolean"}.get(field.java, field.java)
    default = None if field.default is None else show_text(field.default)
    needed = field.needed
    if field.boxed_since and release < tuple(map(int, field.boxed_since.split("."))):
        java, default = "boolean", "false"
    if field.optional_since:
        needed = release < tuple(map(int, field.optional_since.split(".")))
    resource = field.acl.name if field.acl and release >= (5, 0, 0) else ""
    return JavaField(name, java, needed, default, resource)


def names_of(header: type[Header]) -> Iterator[tuple[str, bool]]:
    if header.java:
        yield header.java, False
    if header.java_short:
        yield header.java_short, True


def test_every_header_is_that_of_the_real_class(version: str, tmp_path: Path) -> None:
    real = reflect(version, tmp_path)
    release = tuple(map(int, version.split(".")))
    compared = dict.fromkeys(COUNTS[version], 0)
    declared = {name: (header, short) for header in all_headers() for name, short in names_of(header)}
    assert set(real.headers) - set(declared) - set(NOT_DECLARED) == set()
    for name, (header, short) in declared.items():
        since = tuple(map(int, header.java_since.split("."))) if header.java_since else (4,)
        assert (name in real.headers) == (release >= since), f"{name} is since {header.java_since or '4'}"
        if name not in real.headers:
            continue
        found = real.headers[name]
        assert expected(header, version, short=short) == found.fields, name
        assert (header.strict and (short or not header.java_short)) == found.fast, name
        compared["headers"] += 1
        compared["fields"] += len(found.fields)
        if issubclass(header, Request) and found.action != ("-",):
            code, scope, rights = found.action
            assert any(row.code == int(code) for row in header.codes), name
            if int(code) not in GRANTED_BY_CODE:
                assert {right.name for right in header.rights} == set(rights.split(",")), name
                assert (header.scope.name if header.scope else "UNKNOWN") == scope, name
                compared["rights"] += 1
    for table, ours in (
        ("RequestCode", {row.name: row.code for row in REQUESTS.values() if is_in(row.since, release)}),
        ("ResponseCode", codes_of(version)),
    ):
        theirs = real.constants[table] | (real.constants["RemotingSysResponseCode"] if table == "ResponseCode" else {})
        assert ours.items() <= theirs.items(), table
        compared["requests" if table == "RequestCode" else "responses"] = len(ours)
    assert codes_of(version) == real.constants["ResponseCode"] | real.constants["RemotingSysResponseCode"]
    later = {row.code for row in REQUESTS.values() if not is_in(row.since, release)}
    assert later & set(real.constants["RequestCode"].values()) == set()
    languages = {language.name: int(language) for language in Language}
    assert real.constants["LanguageCode"].items() <= languages.items()
    for name, ordinal in real.constants["Version"].items():
        if 213 <= ordinal < 612:
            assert version_name(ordinal) == name.removeprefix("V").replace("_SNAPSHOT", "-SNAPSHOT").replace("_", ".")
            compared["versions"] += 1
    assert compared == COUNTS[version]


def is_in(since: str, release: tuple[int, ...]) -> bool:
    return not since or release >= tuple(map(int, since.split(".")))
