"""Calls that fail: the n-th one of each writing command, for every n, in every way.

A command may refuse and say why. It may not end by a signal or as a bug, take a message away, acknowledge what is not
there, or leave half of what it makes. Where the fault is a half-done write or read, nothing may be noticed at all.
"""

from __future__ import annotations

import errno
from functools import lru_cache
from typing import NamedTuple

from tests.guards.test_untouched import WRITERS
from tests.proof import command_cases, forked
from tests.proof.campaign import Campaign, Outcome


class Fault(NamedTuple):
    """A way to fail, and the calls that it can meet."""

    word: str
    effect: forked.Effect
    wrapped: tuple[str, ...]
    is_harmless: bool = False


FAULTS = (
    *(
        Fault(errno.errorcode[number], forked.fail_with(number), forked.CHANGING)
        for number in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.ESTALE)
    ),
    *(
        Fault(f"{errno.errorcode[number]} reading", forked.fail_with(number), forked.READING)
        for number in (errno.EIO, errno.EMFILE, errno.EACCES)
    ),
    Fault("half written", forked.do_half, ("pwrite",), is_harmless=True),
    Fault("half read", forked.do_half, ("pread",), is_harmless=True),
)
_NAMES = tuple(WRITERS)
# Coprime to the numbers of calls in practice: the seeds go over all calls of a command before any comes again.
_STRIDE = 7919


def run(seed: int) -> Outcome:
    """Let one call of one command fail."""
    result = Outcome()
    name, turn = _NAMES[seed % len(_NAMES)], seed // len(_NAMES)
    fault = FAULTS[turn % len(FAULTS)]
    before = command_cases.template(name)
    count = _count_calls(name, fault.wrapped)
    if not count:
        return result
    at = turn // len(FAULTS) * _STRIDE % count + 1
    with command_cases.copied(before.parent) as root:
        ended = command_cases.run(name, root, at, fault.effect, fault.wrapped)
        left = command_cases.Left.of(root)
        found = ended.unwanted() + command_cases.lost(before, left) + command_cases.lies(ended, left)
    if fault.is_harmless and ended.status != before.undisturbed.status:
        found.append(f"status {ended.status} instead of {before.undisturbed.status}")
    result.judge(found, f"{name}, seed {seed}, {fault.word} in call {at} of {count}")
    return result


@lru_cache(maxsize=256)
def _count_calls(name: str, wrapped: tuple[str, ...]) -> int:
    with command_cases.copied(command_cases.template(name).parent) as root:
        return command_cases.run(name, root, wrapped=wrapped).calls


CAMPAIGN = Campaign("calls that fail", "faults", 7_200, run)
