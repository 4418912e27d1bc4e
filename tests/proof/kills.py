"""SIGKILL and other signals before the n-th call of each writing command; then a user goes on.

After SIGKILL: what was acknowledged is there, nothing whole is gone, nothing half-made has its final name; once the
store is recovered (or an interrupted repair taken back), each queue leads to its own messages. After SIGINT, SIGTERM
and SIGHUP the store is closed besides. SIGTSTP and SIGPIPE change nothing.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.guards.test_untouched import WRITERS
from tests.proof import command_cases, forked, reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.command_cases import Left, Template

_NAMES = tuple(WRITERS)
_STRIDE = 7919
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A stopped process goes on; what a broken pipe means is told by the write, not by the signal.
_PASSED_OVER = (signal.SIGTSTP, signal.SIGPIPE)


def _case(seed: int) -> tuple[str, Template, int]:
    """Return the command of a seed, its store, and the call before which the signal comes."""
    name, turn = _NAMES[seed % len(_NAMES)], seed // len(_NAMES)
    before = command_cases.template(name)
    return name, before, turn * _STRIDE % max(before.undisturbed.calls, 1) + 1


def kill(seed: int) -> Outcome:
    """Kill a command before one of its calls, and go on as a user would."""
    result = Outcome()
    name, before, at = _case(seed)
    with command_cases.copied(before.parent) as root:
        ended = command_cases.run(name, root, at, forked.end_by(signal.SIGKILL))
        found = [] if ended.status in (-signal.SIGKILL, before.undisturbed.status) else ended.unwanted()
        left = Left.of(root)
        found += command_cases.lost(before, left) + command_cases.lies(ended, left)
        if _is_left_open(before, root):
            found += _go_on(before, root)
            left = Left.of(root)
            found += [
                f"afterwards: {one}" for one in command_cases.lost(before, left) + command_cases.lies(ended, left)
            ]
    result.judge(found, f"{name}, seed {seed}, killed before call {at}")
    return result


def ask_to_end(seed: int) -> Outcome:
    """Send a command a signal before one of its calls, mostly one that asks it to end."""
    result = Outcome()
    name, before, at = _case(seed)
    signals = (*_ASKED, *_PASSED_OVER)
    number = signals[seed // len(_NAMES) % len(signals)]
    effect = forked.pause if number == signal.SIGTSTP else forked.end_by(number)
    with command_cases.copied(before.parent) as root:
        ended = command_cases.run(name, root, at, effect)
        asked = (-number, 130) if number in _ASKED else ()
        expected = (*asked, before.undisturbed.status)
        found = [] if ended.status in expected else [f"status {ended.status}", *ended.unwanted()]
        left = Left.of(root)
        found += command_cases.lost(before, left) + command_cases.lies(ended, left)
        if (root / "abort").exists() and not before.was_crashed:
            found.append("the store was left open")
    result.judge(found, f"{name}, seed {seed}, {number.name} before call {at}")
    return result


def _undo_of(root: Path) -> Path:
    return root.with_name(root.name + "-rmqtool-undo")


def _is_left_open(before: Template, root: Path) -> bool:
    return _undo_of(root).exists() or ((root / "abort").exists() and not before.was_crashed)


def _go_on(before: Template, root: Path) -> list[str]:
    """Take back what was cut, recover what was left open; return what is wrong with it."""
    if _undo_of(root).exists():
        # An interrupted repair is taken back before anything else is done.
        again = forked.run(["repair", str(root), "--undo", "last"])
        if again.status not in (0, 1, 2):
            return [f"the repair cannot be undone: status {again.status}: {again.err[-300:]!r}"]
    if not (root / "abort").exists() or before.was_crashed:
        return []
    done = forked.run(["recover", str(root), "--apply"])
    if done.status != 0:
        return [f"recover --apply: status {done.status}: {done.err[-300:]!r}"]
    wrong = reader.misplaced(reader.tree_of(root))
    return [f"after recover: {one}" for one in wrong] if len(wrong) > before.misplaced else []


KILLS = Campaign("kills", "kills", 30_000, kill)
SIGNALS = Campaign("signals that ask to end", "signals", 3_000, ask_to_end)
