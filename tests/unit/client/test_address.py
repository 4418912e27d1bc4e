"""The address of a cluster, and where its keys come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.client.address import (
    ClusterAddress,
    Credentials,
    find_credentials,
    is_cluster,
    parse_cluster,
    read_credentials,
    split_address,
)
from rmqtool.errors import StoreError, UsageError


@pytest.mark.parametrize(
    ("text", "names", "broker"),
    [
        ("rocketmq://10.0.0.1:9876", ("10.0.0.1:9876",), None),
        ("rocketmq://a:1,b:2/broker-a", ("a:1", "b:2"), "broker-a"),
        ("rocketmq://a:1;b:2", ("a:1", "b:2"), None),
        ("rocketmq://localhost", ("localhost:9876",), None),
        ("rocketmq://[::1]:9877/", ("[::1]:9877",), None),
        ("rocketmq://[::1]", ("[::1]:9876",), None),
    ],
)
def test_an_address_names_name_servers_and_a_broker(text: str, names: tuple[str, ...], broker: str | None) -> None:
    assert is_cluster(text)
    assert parse_cluster(text) == ClusterAddress(names, broker)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rocketmq://user:pw@host:9876", "no user or password"),
        ("rocketmq://", "names no name server"),
        ("rocketmq://host:port", "is not an address"),
        ("rocketmq://host:70000", "is not an address"),
        ("http://host", "is not the address of a cluster"),
    ],
)
def test_what_is_no_address_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_cluster(text)
    assert caught.value.hint
    assert "pw" not in caught.value.message


def test_an_ipv6_address_keeps_its_brackets_where_the_port_needs_them() -> None:
    assert split_address("[fe80::1]:10911") == ("fe80::1", 10911)


def test_keys_are_read_from_a_file_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# mine\naccessKey=me\nsecretKey = s3cret\nsecurityToken=tok\n")
    found = read_credentials(path)
    assert found == Credentials("me", "s3cret", "tok")
    assert "s3cret" not in repr(found)
    assert "tok" not in repr(found)


def test_keys_as_mqadmin_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text('accessKey: "me"\nsecretKey: "12345678"\n')
    assert read_credentials(path) == Credentials("me", "12345678")


def test_a_file_without_keys_or_no_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("accessKey=me\n")
    with pytest.raises(UsageError, match="no accessKey and secretKey"):
        read_credentials(path)
    with pytest.raises(StoreError, match="cannot read the credentials"):
        read_credentials(tmp_path / "none")


def test_keys_of_the_environment_need_each_other(tmp_path: Path) -> None:
    both = {"RMQTOOL_ACCESS_KEY": "me", "RMQTOOL_SECRET_KEY": "s"}
    assert find_credentials(None, both) == Credentials("me", "s")
    assert find_credentials(None, {}) is None
    with pytest.raises(UsageError, match="RMQTOOL_ACCESS_KEY is set and RMQTOOL_SECRET_KEY is not"):
        find_credentials(None, {"RMQTOOL_ACCESS_KEY": "me"})
    path = tmp_path / "keys"
    path.write_text("accessKey=file\nsecretKey=x\n")
    assert find_credentials(path, both) == Credentials("file", "x")
