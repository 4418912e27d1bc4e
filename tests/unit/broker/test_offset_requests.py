"""Asking for, committing and resetting the progress of a group: the checks of §8."""

from __future__ import annotations

import pytest

from rmqtool.broker.consumer.queue_view import Residence
from rmqtool.broker.offsets import ConsumerOffsets, OffsetRequests, progress_file
from rmqtool.config import Version
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.store.config_files import config_text
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.manual_clock import ManualClock
from tests.support.queue_views import StatedQueue, StatedQueues

QUEUES = StatedQueues(
    {
        ("T", 0): StatedQueue(0, 10, Residence.MEMORY, {1000: 4, 2000: -1}),
        ("T", 1): StatedQueue(50, 90, Residence.DISK, {1000: 60, 2000: 55}),
        ("T", 2): StatedQueue(0, 10, Residence.DISK),
    }
)


def requests(version: Version) -> tuple[OffsetRequests, ConsumerOffsets]:
    text = config_text(FaultyFileSystem(FaultyDisk()), progress_file(enable_lmq=False))
    offsets = ConsumerOffsets(text, version, ManualClock())
    return OffsetRequests(offsets, QUEUES, version, {"T"}, {"g"}), offsets


both = pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])


@both
def test_c8_4_a_new_group_starts_at_the_young_beginning(version: Version) -> None:
    assert requests(version)[0].query("g", "T", 0) == 0


def test_c8_5_a_new_group_on_a_queue_that_was_never_used() -> None:
    assert requests(Version.V4_9)[0].query("g", "T", 9) == 0
    assert requests(Version.V5_3)[0].query("g", "T", 9) is None


@both
def test_c8_6_a_new_group_where_messages_are_gone_decides_itself(version: Version) -> None:
    assert requests(version)[0].query("g", "T", 1) is None
    assert requests(version)[0].query("g", "T", 2) is None, "the first message is there, but old"


@both
def test_progress_that_there_is_comes_first(version: Version) -> None:
    answers, offsets = requests(version)
    offsets.commit_offset("g", "T", 1, 3)
    assert answers.query("g", "T", 1) == 3


def test_a_5_x_client_may_forbid_the_beginning() -> None:
    assert requests(Version.V5_3)[0].query("g", "T", 0, zero_if_not_found=False) is None


def test_commits_for_what_nobody_knows() -> None:
    answers, offsets = requests(Version.V5_3)
    assert answers.update("h", "T", 0, 1) is ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert answers.update("g", "U", 0, 1) is ResponseCode.TOPIC_NOT_EXIST
    assert answers.update("g", "T", None, 1) is ResponseCode.INVALID_PARAMETER
    assert answers.update("g", "T", 0, None) is ResponseCode.INVALID_PARAMETER
    assert list(offsets.iter_subscriptions()) == []
    assert answers.update("g", "T", 0, 1) is ResponseCode.SUCCESS
    older, offsets = requests(Version.V4_9)
    assert older.update("h", "U", 0, 1) is ResponseCode.SUCCESS
    assert offsets.query_offset("h", "U", 0) == 1


def test_c8_9_a_reset_while_nobody_consumes() -> None:
    older, offsets = requests(Version.V4_9)
    offsets.commit_offset("g", "T", 0, 7)
    answer = older.reset_online("g", "T", [0], 1000, force=True, is_online=False)
    assert (answer.code, answer.offsets) == (ResponseCode.CONSUMER_NOT_ONLINE, {})
    newer, offsets = requests(Version.V5_3)
    answer = newer.reset("g", "T", [0, 1], timestamp=1000)
    assert (answer.code, answer.offsets) == (ResponseCode.SUCCESS, {0: 4, 1: 60})
    assert offsets.take_reset("g", "T", 0) == 4, "the next pull is answered with it"
    assert offsets.take_reset("g", "T", 0) is None
    assert offsets.query_offset("g", "T", 0) == 4


def test_c8_10_a_commit_while_a_reset_waits_changes_nothing() -> None:
    answers, offsets = requests(Version.V5_3)
    answers.reset("g", "T", [0], to=3)
    assert answers.update("g", "T", 0, 9) is ResponseCode.SUCCESS
    assert offsets.query_offset("g", "T", 0) == 3
    assert answers.query("g", "T", 0) == 3
    offsets.take_reset("g", "T", 0)
    assert answers.update("g", "T", 0, 9) is ResponseCode.SUCCESS
    assert offsets.query_offset("g", "T", 0) == 9


def test_a_group_that_is_removed_has_no_pending_reset() -> None:
    answers, offsets = requests(Version.V5_3)
    answers.reset("g", "T", [0], to=3)
    offsets.remove(lambda _topic, group: group == "g")
    assert not offsets.has_pending_reset("g", "T", 0)


@pytest.mark.parametrize(("to", "code"), [(49, 1), (50, 0), (91, 0), (92, 1)])
def test_a_reset_to_an_offset_stays_in_the_queue(to: int, code: int) -> None:
    answers, offsets = requests(Version.V5_3)
    assert answers.reset("g", "T", [1], to=to).code == code
    assert offsets.query_offset("g", "T", 1) == (-1 if code else to)


def test_a_reset_to_an_offset_is_of_one_queue() -> None:
    answers, offsets = requests(Version.V5_3)
    assert answers.reset("g", "T", [0, 2], to=3).code is ResponseCode.SYSTEM_ERROR
    assert list(offsets.iter_subscriptions()) == []


def test_a_reset_of_what_nobody_knows() -> None:
    answers, _ = requests(Version.V5_3)
    assert answers.reset("g", "U", [0]).code is ResponseCode.TOPIC_NOT_EXIST
    assert answers.reset("h", "T", [0]).code is ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_reset_without_a_time_goes_to_the_end() -> None:
    assert requests(Version.V5_3)[0].reset("g", "T", [0, 1]).offsets == {0: 10, 1: 90}


def test_consumers_online_are_told_where_to_go() -> None:
    answers, offsets = requests(Version.V4_9)
    offsets.commit_offset("g", "T", 0, 7)
    answer = answers.reset_online("g", "T", [0, 1], 1000, force=False, is_online=True)
    assert answer.code is ResponseCode.SYSTEM_ERROR, "no progress in queue 1"
    offsets.commit_offset("g", "T", 1, 51)
    assert answers.reset_online("g", "T", [0, 1], 1000, force=False, is_online=True).offsets == {0: 4, 1: 51}
    assert answers.reset_online("g", "T", [0, 1], 1000, force=True, is_online=True).offsets == {0: 4, 1: 60}
    assert answers.reset_online("g", "T", [0, 1], -1, force=True, is_online=True).offsets == {0: 10, 1: 90}
    assert answers.reset_online("g", "T", [0], 2000, force=True, is_online=True).offsets == {0: 0}
    assert offsets.query_offset("g", "T", 0) == 7, "consumers set it themselves"
