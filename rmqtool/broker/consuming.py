"""Rounds of consumption: what is fetched is shown, or given to programs, and then finished and saved.

The generators wait for whoever shows what they yield: a message is consumed when the next step is asked for. ``None``
says that there is nothing to do for now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmqtool.broker.flow_control import PULL_BATCH_SIZE
from rmqtool.broker.group_consumer import Delivered, GroupConsumer
from rmqtool.broker.programs import Ended, Programs


@dataclass(frozen=True)
class Extent:
    """How much is consumed: at most ``limit``, until ``stopped`` says so; with ``follows`` the end is not the end."""

    limit: int | None
    follows: bool
    stopped: Callable[[], bool]


def iter_shown(consumer: GroupConsumer, extent: Extent) -> Iterator[list[Delivered] | None]:
    """Yield messages; they are consumed when the next ones are asked for."""
    left = extent.limit
    while not extent.stopped() and left != 0:
        consumer.fetch()
        # What is under way when the process dies is shown again: a pull of each member at most.
        at_once = PULL_BATCH_SIZE * consumer.members
        taken = consumer.take(at_once if left is None else min(left, at_once))
        if taken:
            yield taken
            for delivered in taken:
                consumer.finish(delivered, is_ok=True)
            left = None if left is None else left - len(taken)
        elif consumer.is_at_end and not extent.follows:
            break
        elif consumer.is_at_end:
            yield None
        consumer.save()
    consumer.save()


def iter_executed(consumer: GroupConsumer, programs: Programs, extent: Extent) -> Iterator[Ended | None]:
    """Yield what came of each message; what is finished is saved before anything else is started.

    Once it is to stop nothing is started any more, and what runs is waited for.
    """
    left = extent.limit
    while True:
        is_ending = extent.stopped() or left == 0
        if not is_ending:
            consumer.fetch()
            taken = consumer.take(programs.free if left is None else min(left, programs.free))
            left = None if left is None else left - len(taken)
            for delivered in taken:
                programs.start(delivered)
        if programs.is_idle:
            resumes_in = consumer.resumes_in
            if is_ending or (consumer.is_at_end and not extent.follows):
                break
            if resumes_in is None or consumer.is_at_end:
                yield None
            else:
                programs.wait(resumes_in)
            continue
        ended = programs.wait(consumer.resumes_in)
        for one in ended:
            consumer.finish(one.delivered, is_ok=one.is_ok)
        consumer.save()
        yield from ended
    consumer.save()
