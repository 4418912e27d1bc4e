"""Who may use ``rmqtool serve``: other machines, dangerous requests, accounts in a file that changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqtool
from rmqtool.api.init import init
from rmqtool.errors import Refused, UsageError
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import encode_frame
from rmqtool.remoting.signature import sign
from tests.support.serve_process import ServeProcess
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient, send_fields

ACCOUNTS = """
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "store"
    init(found, conf={"mappedFileSizeCommitLog": str(1 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "100"})
    return found


def ask_signed(
    client: WireClient, code: int, given: dict[str, object], body: bytes = b"", secret: str = "12345678"
) -> RemotingCommand:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    command = sign(RemotingCommand(code, texts, body, 1_000_000, version=479), "RocketMQ", secret)
    client.socket.sendall(encode_frame(command))
    return client.answer_to(1_000_000)


def test_other_machines_need_accounts_or_leave(root: Path, tmp_path: Path) -> None:
    anywhere = {"listen": "0.0.0.0:0", "advertise": "127.0.0.1"}
    with pytest.raises(Refused) as refused, rmqtool.serve(root, **anywhere):
        pass
    assert "--acl FILE" in str(refused.value.hint)
    assert "--allow open" in str(refused.value.hint)
    with rmqtool.serve(root, **anywhere, allow="open"):
        pass
    (tmp_path / "acl.yml").write_text(ACCOUNTS)
    with rmqtool.serve(root, **anywhere, acl=str(tmp_path / "acl.yml")):
        pass
    with pytest.raises(UsageError, match="open and admin"), rmqtool.serve(root, allow="everything"):
        pass


def test_dangerous_requests_need_leave(root: Path) -> None:
    with rmqtool.serve(root) as served, WireClient(served.broker) as client:
        for code, fields in ((215, {"topic": "T"}), (207, {"groupName": "G"}), (25, {}), (318, {}), (329, {})):
            answer = client.ask(code, fields)
            assert answer.code in (ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED), code
            if code in (215, 207):
                assert answer.code == ResponseCode.NO_PERMISSION
                assert "--allow admin" in str(answer.remark)
    with rmqtool.serve(root, allow=["admin"]) as served, WireClient(served.broker) as client:
        assert client.ask(215, {"topic": "T"}).code == ResponseCode.SUCCESS


def test_requests_are_judged_and_the_file_is_watched(root: Path, tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    with rmqtool.serve(root, acl=str(accounts)) as served, WireClient(served.broker) as client:
        refused = client.ask(310, send_fields("T"), b"x")
        assert (refused.code, refused.remark) == (
            1,
            "org.apache.rocketmq.acl.common.AclException: No accessKey is configured",
        )
        assert ask_signed(client, 310, send_fields("T"), b"x").code == 0
        assert ask_signed(client, 310, send_fields("T"), b"x", "wrong").code == 1
        accounts.write_text(ACCOUNTS.replace("PUB|SUB", "SUB"))
        wait_for(lambda: ask_signed(client, 310, send_fields("T"), b"x").code != 0)
        # A file that is wrong changes nothing.
        accounts.write_text("accounts: [")
        assert ask_signed(client, 310, send_fields("T"), b"x").code == 1


@pytest.fixture
def served(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServeProcess]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    found = ServeProcess(root, tmp_path, "--acl", str(tmp_path / "plain_acl.yml"))
    yield found
    found.kill()


def test_commands_of_the_same_user_need_no_account(served: ServeProcess, root: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rmqtool", *words], capture_output=True, text=True, env=dict(os.environ), check=False
        )

    made = run("topic", str(root), "create", "Mine", "--jsonl")
    assert made.returncode == 0, made.stderr
    put = run("produce", str(root), "x", "-t", "Mine", "--jsonl")
    assert put.returncode == 0, put.stderr
    assert json.loads(put.stdout)["status"] == "PUT_OK"
    gone = run("topic", str(root), "delete", "Mine", "--yes")
    assert gone.returncode == 0, gone.stderr
    with WireClient(served.broker) as client:
        assert client.ask(310, send_fields("Mine"), b"x").code == 1
