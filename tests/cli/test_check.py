"""``check``: silent on what brokers wrote, plain about what is damaged."""

from __future__ import annotations

import json

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.damaged import Workshop, mutations
from tests.schemas import validate
from tests.stores import STORES, left_alone

# What a killed or a wrongly recovered store must show, and nothing else from warning up.
EXPECTED = {
    "49-ghost": {"CQ-WRONG"},
    "49-killed": {"ST-ABORT", "CQ-MISSING", "IX-MISSING"},
    "49-killed-broker": {"ST-ABORT"},
    "49-killed-torn": {"ST-ABORT", "CL-TORN", "CQ-AHEAD", "IX-AHEAD"},
    "53-killed": {"ST-ABORT", "IX-MISSING"},
}


def check(capsys, root, *words):
    with left_alone(root):
        status = main(["check", str(root), "--jsonl", *words])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for finding in lines[:-1]:
        validate("finding", finding)
    validate("check-summary", lines[-1])
    return status, lines[:-1], lines[-1]["summary"]


@pytest.mark.parametrize("name", STORES)
def test_what_brokers_wrote_has_no_finding_above_notice(name, store, capsys):
    status, findings, summary = check(capsys, store(name))
    codes = {finding["code"] for finding in findings if finding["severity"] != "notice"}
    assert codes == EXPECTED.get(name, set())
    assert status == (Exit.NO if codes else Exit.DONE)
    assert summary["complete"] is True


def test_a_flipped_bit_of_a_body_is_named_with_its_place(tmp_path, capsys):
    mutation = mutations("4.9.8")["A/body-flip@last-mid"]
    with Workshop(tmp_path).damaged("4.9.8", mutation, abort=False) as root:
        status, findings, _ = check(capsys, root)
    found = [finding for finding in findings if finding["code"] == "CL-CRC"]
    assert status == Exit.NO
    assert [(finding["severity"], finding["file"]) for finding in found] == [
        ("error", "commitlog/00000000000000393216")
    ]
    assert 12733 <= found[0]["offset"] < 12733 + 197
