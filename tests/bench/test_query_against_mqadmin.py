"""A key from a cold process to the printed answer, beside upstream's own tool on the same store in the same minutes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.peer.__main__ import generate, mqadmin_tasks, one_key, stub_broker
from tests.bench.peer.build import build
from tests.bench.peer.measuring import read_into_cache, run
from tests.conformance.oracle.packages import missing_tools

SCALE = 0.1
ROUNDS = 7
# The machine's own noise is taken off what is asked for.
AT_MOST = 0.25 * 1.15


@pytest.mark.bench
@pytest.mark.skipif(bool(missing_tools()), reason="the peer needs a JDK and Maven")
def test_a_key_against_the_administration_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build()
    store = generate("4.9.8", "S1", SCALE)
    read_into_cache(store)
    topic, key = one_key(SCALE)
    ours = [sys.executable, "-m", "rmqtool", "query", str(store), key, "-t", topic]
    # An installed tool has its modules compiled; so has the one that is measured, whatever this environment says.
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    run(ours, tmp_path / "errors", compiled)
    answers: dict[str, list[float]] = {"ours": [], "mqadmin": []}
    with stub_broker(SCALE) as message_id:
        theirs = next(task for task in mqadmin_tasks("4.9.8", message_id) if task.awaited)
        for _ in range(ROUNDS):
            for name, command, environment, awaited in (
                ("ours", ours, compiled, f"{topic}/"),
                ("mqadmin", theirs.command, theirs.environment, theirs.awaited),
            ):
                cost = run(command, tmp_path / "errors", environment, awaited)
                assert cost.answered is not None, (tmp_path / "errors").read_text()
                answers[name].append(cost.answered)
    mine, real = (min(answers[name]) for name in ("ours", "mqadmin"))
    with capsys.disabled():
        print(f"\nquery by key {mine:.3f} s, mqadmin queryMsgById {real:.3f} s: {mine / real:.2f} of it")
    assert mine / real <= AT_MOST
