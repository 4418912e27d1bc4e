"""Transactions: a half message, then what becomes of it; and the answers to brokers that ask what became of one.

A broker asks a producer of the group that it hears from, so a producer whose transactions may be asked about sends
heartbeats. Java sends the end of a transaction without waiting; here the answer is waited for, where there is one.

Upstream: ``DefaultMQProducerImpl.sendMessageInTransaction``, ``checkTransactionState``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple

from rmqtool.broker.services.transactions import TransactionState
from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import Connection
from rmqtool.client.producer import Producer, SendResult
from rmqtool.engine.message import NewMessage
from rmqtool.errors import RemoteError
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.property_names import PGROUP, TRAN_MSG
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.declared import HeaderError
from rmqtool.remoting.requests.messages import CheckTransactionState, EndTransaction

CHECK: Final = 39
_TYPES: Final = {
    TransactionState.COMMIT: TransactionType.COMMIT,
    TransactionState.ROLLBACK: TransactionType.ROLLBACK,
    TransactionState.UNKNOWN: TransactionType.NONE,
}

# Says what became of a half message that a broker asks about.
Checker = Callable[[Message], Awaitable[TransactionState]]


class Half(NamedTuple):
    """A half message that is stored, and the address of the broker that has it."""

    result: SendResult
    address: str
    group: str


async def send_half(producer: Producer, cluster: Cluster, message: NewMessage) -> Half:
    """Store a half message, which consumers do not see before its commit. Raises what ``Producer.begin`` says."""
    group = producer.settings.group
    properties = {**message.property_map(), PGROUP: group, TRAN_MSG: "true"}
    half = replace(message, properties=properties, sys_flag=message.sys_flag | TransactionType.PREPARED)
    result = await producer.send(half)
    route = await cluster.routes.find(message.topic, creates=True)
    address = route.write_address(result.broker)
    if address is None:
        raise RemoteError(
            f"broker {result.broker} has no master now: the transaction {result.msg_id} is undecided",
            hint="the broker will ask a producer of its group",
        )
    return Half(result, address, group)


async def end(cluster: Cluster, half: Half, state: TransactionState) -> None:
    """Commit or roll back a half message. Raises RemoteError where that is not certain."""
    if state is TransactionState.UNKNOWN:
        return
    result = half.result
    request = EndTransaction(
        producer_group=half.group,
        tran_state_table_offset=result.queue_offset,
        commit_log_offset=result.physical_offset,
        commit_or_rollback=_TYPES[state],
        from_transaction_check=False,
        msg_id=result.msg_id,
        transaction_id=result.transaction_id or result.msg_id,
        topic=result.topic,
        bname=result.broker,
    )
    await cluster.ask(half.address, request)


class Checks:
    """Answers the checks of brokers for the producers of a client: ``checkers`` by group."""

    def __init__(self, cluster: Cluster) -> None:
        self.checkers: dict[str, Checker] = {}
        # Errors of checkers. Their transactions stay undecided, and the broker asks again.
        self.failures: list[Exception] = []
        self._cluster = cluster
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.handlers[CHECK] = self._take

    def _take(self, connection: Connection, command: RemotingCommand) -> None:
        task = asyncio.get_running_loop().create_task(self._check(connection, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self, connection: Connection, command: RemotingCommand) -> None:
        record = decode_record(command.body, 0)
        try:
            header = CheckTransactionState.decode(command.ext)
        except HeaderError:
            return
        if not isinstance(record, Message):
            return
        group = record.properties.get(PGROUP, "")
        checker = self.checkers.get(group)
        if checker is None:
            return
        try:
            state = await checker(record)
        except Exception as error:
            self.failures.append(error)
            return
        answer = EndTransaction(
            producer_group=group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=_TYPES[state],
            from_transaction_check=True,
            msg_id=header.msg_id or record.uniq_key or "",
            transaction_id=header.transaction_id,
            topic=record.topic,
        )
        if connection.is_open:
            connection.tell(EndTransaction.codes[0].code, answer.encode())
