"""The remarks of refusals are texts that the real classes have: each part of each, in the constants of their code."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from rmqtool.formats.codes import is_since
from rmqtool.remoting import answers
from rmqtool.remoting.answers import Refusal
from tests.conformance.oracle.packages import prepare

CLASSES = """
    broker.processor.AbstractSendMessageProcessor broker.processor.SendMessageProcessor
    broker.processor.PullMessageProcessor broker.processor.ConsumerManageProcessor
    broker.processor.QueryMessageProcessor broker.processor.ClientManageProcessor
    broker.processor.AdminBrokerProcessor broker.processor.ReplyMessageProcessor
    broker.client.net.Broker2Client broker.latency.BrokerFastFailure
    namesrv.processor.DefaultRequestProcessor namesrv.processor.ClientRequestProcessor
    remoting.netty.NettyRemotingAbstract common.help.FAQUrl
"""
ALL = {name: value for name, value in vars(answers).items() if isinstance(value, Refusal)}
# Texts that came with 5.x; 4.9 has no such refusal.
ONLY_5 = {"TOPIC_IS_SYSTEMS"}

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.4.0"])]


def constants(version: str) -> str:
    """Return every text constant of the classes that answer."""
    if shutil.which("javap") is None:
        pytest.skip("javap is not installed")
    names = [f"org.apache.rocketmq.{name}" for name in CLASSES.split()]
    command = ["javap", "-v", "-p", "-constants", "-cp", f"{prepare(version)}/lib/*", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.findall(r"= (?:String|Utf8) +(?:#\d+ +// +)?(.*)", done.stdout)
    return "\n".join(text.replace("\\'", "'") for text in found)


def parts(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\{\w+\}|\[|\]|<|>", text) if len(part.strip()) > 3]


def test_every_part_of_every_remark_is_upstreams(version: str, real_classes: object) -> None:
    real_classes(version)  # type: ignore[operator]
    known = constants(version)
    compared = 0
    for name, refusal in ALL.items():
        is_5 = is_since(version, "5.0.0")
        if name in ONLY_5 and not is_5:
            continue
        text = refusal.text_5 if is_5 and refusal.text_5 else refusal.text
        for part in parts(text):
            assert part in known, (name, part)
            compared += 1
    further = answers.FURTHER_5 if is_since(version, "5.0.0") else answers.FURTHER_4
    assert further.split()[1] in known
    assert compared == {"4.9.7": 67, "5.3.3": 69, "5.4.0": 69}[version]
