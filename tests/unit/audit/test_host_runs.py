"""The hosts that stored the records of a log, run by run, for addresses of both families."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.audit.due import HostRun, Wanted, batch_of
from rmqtool.columns.records import decode_records
from rmqtool.formats.dispatch import DispatchRules
from tests.support import builders
from tests.support.builders import BORN_V4_HOST, BORN_V6_HOST, STORE_V4_HOST, STORE_V6_HOST, Host

OTHER_V4, OTHER_V6 = Host(bytes((10, 0, 0, 7)), 10911), Host(bytes(15) + b"\7", 10911)
OTHER_PORT = Host(STORE_V4_HOST.ip, 10912)


def runs_of(hosts: list[tuple[Host, Host]]) -> list[HostRun]:
    """Return the runs of records with these born and store hosts."""
    parts: list[bytes] = []
    for born, store in hosts:
        at = sum(map(len, parts))
        parts.append(builders.record(b"body", b"T", b"", physical_offset=at, born_host=born, store_host=store))
    offsets = np.cumsum([0, *map(len, parts[:-1])])
    records, _ = decode_records(np.frombuffer(b"".join(parts), np.uint8), offsets)
    assert len(records) == len(hosts)
    return batch_of(records, Wanted(DispatchRules())).hosts


@pytest.mark.parametrize(("store", "other"), [(STORE_V4_HOST, OTHER_V4), (STORE_V6_HOST, OTHER_V6)])
def test_runs_of_one_family_whatever_the_family_of_clients(store: Host, other: Host) -> None:
    clients = [BORN_V4_HOST, BORN_V6_HOST, BORN_V6_HOST, BORN_V4_HOST, BORN_V6_HOST]
    stores = [store, store, other, other, store]
    found = runs_of(list(zip(clients, stores, strict=True)))
    expected = [(one.ip + one.port.to_bytes(4, "big"), count) for one, count in ((store, 2), (other, 2), (store, 1))]
    assert [(run.host, run.records) for run in found] == expected


def test_another_port_is_another_host() -> None:
    found = runs_of([(BORN_V4_HOST, STORE_V4_HOST), (BORN_V4_HOST, OTHER_PORT), (BORN_V4_HOST, OTHER_PORT)])
    assert [run.records for run in found] == [1, 2]


def test_runs_of_both_families_are_apart() -> None:
    both = [(BORN_V4_HOST, STORE_V4_HOST), (BORN_V4_HOST, STORE_V6_HOST), (BORN_V4_HOST, STORE_V4_HOST)]
    assert sorted((len(run.host), run.records) for run in runs_of(both)) == [(8, 2), (20, 1)]
