"""Secrets: one list of names, for settings and for the wire."""

from __future__ import annotations

import pytest

from rmqtool import secrets
from rmqtool.config import StoreConfig
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.wire_log import line_of
from rmqtool.secrets import MASK

NAMES = (
    "secretKey",
    "tls.server.keyPassword",
    "tls.client.key_passwd",
    "db.pass",
    "passwordFile",
    "sessionToken",
    "userCredentials",
    "private_key",
    "sslPrivateKeyPem",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_is_masked_as_a_setting_and_on_the_wire(name: str) -> None:
    assert secrets.is_secret(name)
    config = StoreConfig.default().with_broker_conf(f"{name}=hunter2")
    assert {line.name: line.value for line in config.iter_shown()}[name] == MASK
    line = line_of(RemotingCommand(310, {name: "hunter2"}))
    assert f"{name}={MASK}" in line
    assert "hunter2" not in line


@pytest.mark.parametrize("name", ["topic", "passiveMode", "compassHeading", "keyFile", "publicKey", "AccessKey"])
def test_other_names_are_shown(name: str) -> None:
    assert not secrets.is_secret(name)
    assert f"{name}=plain" in line_of(RemotingCommand(310, {name: "plain"}))


def test_a_value_with_a_password_is_a_secret_under_any_name() -> None:
    assert secrets.is_secret("initUser", '{"username":"u","password":"hush"}')
    assert secrets.is_secret("initUser", '{\\"secretKey\\" : \\"s\\"}')
    assert not secrets.is_secret("initUser", "the password is elsewhere")
