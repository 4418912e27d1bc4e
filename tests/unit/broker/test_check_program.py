"""The program that decides transactions: each half message gets its own decision."""

from __future__ import annotations

import threading
from pathlib import Path

from rmqtool.broker.services.check_program import ProgramBeside
from rmqtool.broker.services.transactions import EndRequest, TransactionState
from rmqtool.formats.commit_log import Message, decode_record
from tests.support.builders import record
from tests.support.waiting import PATIENCE


def half(body: bytes, queue_offset: int, **properties: str) -> Message:
    given = {"UNIQ_KEY": "SAME", "PGROUP": "P", "REAL_TOPIC": "T", "REAL_QID": "0", **properties}
    text = "".join(f"{name}\x01{value}\x02" for name, value in given.items()).encode()
    made = decode_record(
        record(
            topic=b"RMQ_SYS_TRANS_HALF_TOPIC",
            body=body,
            queue_offset=queue_offset,
            physical_offset=1000 * queue_offset,
            property_text=text,
        ),
        0,
    )
    assert isinstance(made, Message)
    return made


def decided(tmp_path: Path, *halves: Message) -> dict[int, TransactionState]:
    """Ask about all while the first is being decided, and return the decisions by the queue offset of the copy."""
    found: dict[int, TransactionState] = {}
    wanted = threading.Event()
    go = tmp_path / "go"

    def decide(end: EndRequest) -> None:
        found[end.tran_state_table_offset] = end.state

    def soon(work):  # type: ignore[no-untyped-def]
        work()
        wanted.set()

    command = f"while [ ! -e {go} ]; do sleep 0.02; done; grep -q commit-me"
    beside = ProgramBeside(command, soon, decide)
    try:
        asked = [beside.ask(one) for one in halves]
        assert asked == [TransactionState.UNKNOWN] * len(halves)
        go.touch()
        while len(found) < len({one.raw_body for one in halves}):
            assert wanted.wait(PATIENCE)
            wanted.clear()
    finally:
        beside.end()
    return found


def test_two_messages_with_one_key_have_two_decisions(tmp_path: Path) -> None:
    found = decided(tmp_path, half(b"commit-me", 3), half(b"not-me", 4))
    assert found == {3: TransactionState.COMMIT, 4: TransactionState.ROLLBACK}


def test_a_newer_copy_of_a_message_gets_the_decision_about_it(tmp_path: Path) -> None:
    first, copy = half(b"commit-me", 3), half(b"commit-me", 9, TRAN_PREPARED_QUEUE_OFFSET="3")
    assert decided(tmp_path, first, copy) == {9: TransactionState.COMMIT}
