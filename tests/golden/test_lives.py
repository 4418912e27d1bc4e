"""Acceptance: the lives recorded in the broker and timer fixtures come out the same, record for record, lived again.

The records, the timer log and the timer wheel are the same, byte for byte but for hosts and for the times at which the
broker passed by. What differs is named here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.topics import HALF_TOPIC, OP_HALF_TOPIC, REVIVE_GROUP, REVIVE_PREFIX, TRANS_GROUP
from tests.support.lives import Life, shown
from tests.support.stores import truth

NAMES = ["49-broker", "53-broker", "54-broker", "53-timer"]
# Slots whose messages a real broker put in another order than they were enqueued in: several threads read them, and
# none waits for the others. By the last digits of the delivery second.
REORDERED = {"53-timer": [4927, 4928, 4930], "54-broker": [4083, 4084]}


@pytest.fixture(scope="module")
def lived(store: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Life]:
    """Return a function that lives a store again, once."""
    lives: dict[str, Life] = {}

    def get(name: str) -> Life:
        if name not in lives:
            life = lives[name] = Life(name, store(name), tmp_path_factory.mktemp("lives") / name)
            life.live()
            life.close()
        return lives[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_every_record_comes_out_the_same(name: str, lived: Callable[[str], Life]) -> None:
    life = lived(name)
    assert [(kind, shown(real), ours and shown(ours)) for kind, real, ours in life.differing] == []
    assert [time // 1000 % 10_000 for time in life.timers.reordered] == REORDERED.get(name, [])


def test_everything_happened_that_a_broker_does(lived: Callable[[str], Life]) -> None:
    kinds = {kind for name in NAMES for kind in lived(name).kinds}
    assert kinds >= {"sent", "delivered", "sent back", "given up", "half", "committed", "checked", "op"}
    assert kinds >= {"timer", "rolled", "cancelled", "popped", "changed", "acked", "revived"}
    assert lived("53-timer").kinds["cancelled"] == 2


@pytest.mark.parametrize("name", ["53-timer", "53-broker", "54-broker"])
def test_timer_log_and_wheel_are_the_same(
    name: str, lived: Callable[[str], Life], store: Callable[[str], Path]
) -> None:
    ours, real = Path(lived(name).files.root), store(name)
    files = sorted(path.relative_to(real) for path in real.glob("timer[lw]*/**/*") if path.is_file())
    for path in [*files, Path("timerwheel")]:
        assert (ours / path).read_bytes() == (real / path).read_bytes(), path
    life = lived(name)
    check = truth(name)["timer"]["timercheck"]
    assert life.services.timers.queue_offset == check["lastTimerQueueOffset"]
    assert life.services.timers.log.end == check["lastTimerLogFlushPos"]


@pytest.mark.parametrize("name", ["49-broker", "53-broker", "54-broker"])
def test_progress_is_the_same(name: str, lived: Callable[[str], Life]) -> None:
    life, configs = lived(name), truth(name)["configFiles"]
    table = configs["consumerOffset.json"]["offsetTable"]
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        assert life.services.offsets.query_offset(TRANS_GROUP, topic, 0) == table[f"{topic}@{TRANS_GROUP}"]["0"]
    if name != "49-broker":
        for queue_id, offset in table[f"{REVIVE_PREFIX}DevCluster@{REVIVE_GROUP}"].items():
            assert (
                life.services.offsets.query_offset(REVIVE_GROUP, f"{REVIVE_PREFIX}DevCluster", int(queue_id)) == offset
            )
    real = {int(level): offset for level, offset in configs["delayOffset.json"]["offsetTable"].items()}
    # A 5.x broker also writes down the levels that it has looked at in vain.
    assert life.services.delay.offsets == {level: offset for level, offset in real.items() if offset}
