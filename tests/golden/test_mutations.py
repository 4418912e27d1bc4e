"""Applying the catalogues gives the stores that the brokers were started on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.mutations import OPERATIONS, Mutation, apply_mutation, apply_operation, read_catalogue, set_abort
from tests.support.stores import read_lines

VERSIONS = ("4.9.8", "5.3.3", "5.4.0")


def catalogue(version: str) -> list[Mutation]:
    folder = f"recovery-{version}"
    return [*read_catalogue(folder).values(), *read_catalogue(folder, "mutations-fuzz.jsonl").values()]


def one_of_each_kind() -> dict[str, tuple[str, Mutation]]:
    """Return a mutation of every group and one with every operation, of one version after the other."""
    kinds: dict[str, dict[str, Mutation]] = {}
    for version in VERSIONS:
        for mutation in catalogue(version):
            for kind in (mutation.group, *(operation["op"] for operation in mutation.operations)):
                kinds.setdefault(kind, {})[version] = mutation
    chosen = {}
    for number, found in enumerate(kinds.values()):
        version = list(found)[number % len(found)]
        chosen[f"{version} {found[version].key}"] = (version, found[version])
    return chosen


EVERY = {f"{version} {mutation.key}": (version, mutation) for version in VERSIONS for mutation in catalogue(version)}
SAMPLE = one_of_each_kind()


def files_before_the_start(outcome: dict[str, Any]) -> dict[str, int | None]:
    """Return the files of the damaged store as the outcome knows them; the size where it says so."""
    changed = {change["path"]: change for change in outcome["files_changed"]}
    files = {path: None for path in outcome["files_after"] if changed.get(path, {}).get("change") != "added"}
    return files | {path: change["before"] for path, change in changed.items() if change["change"] != "added"}


@cache
def outcomes(version: str) -> dict[str, dict[str, Any]]:
    files = (f"recovery-{version}/{name}.jsonl.xz" for name in ("outcomes", "outcomes-fuzz"))
    return {outcome["id"]: outcome for file in files for outcome in read_lines(file)}


def outcome_of(version: str, mutation: Mutation) -> dict[str, Any]:
    found = outcomes(version)
    with_abort = found.get(f"{mutation.key}/abort")
    return with_abort if with_abort and mutation.abort is not False else found[f"{mutation.key}/clean"]


def check_files(version: str, mutation: Mutation, unpack: Callable[[str], Path]) -> None:
    outcome = outcome_of(version, mutation)
    root = unpack(f"recovery-{version}/base-{mutation.base}")
    apply_mutation(root, mutation, abort=outcome["abort"])
    expected = files_before_the_start(outcome)
    found = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    assert {path: size if expected.get(path) is not None else None for path, size in found.items()} == expected


@pytest.mark.parametrize(("version", "mutation"), SAMPLE.values(), ids=SAMPLE)
def test_damaged_store_has_the_files_of_its_outcome(
    version: str, mutation: Mutation, writable_store: Callable[[str], Path]
) -> None:
    check_files(version, mutation, writable_store)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "mutation"), EVERY.values(), ids=EVERY)
def test_every_damaged_store_has_the_files_of_its_outcome(
    version: str, mutation: Mutation, writable_store: Callable[[str], Path]
) -> None:
    check_files(version, mutation, writable_store)


def test_sample_covers_every_operation() -> None:
    assert {operation["op"] for _, mutation in SAMPLE.values() for operation in mutation.operations} == set(OPERATIONS)


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_broken_config_files(version: str, writable_store: Callable[[str], Path]) -> None:
    mutations = read_catalogue(f"recovery-config-{version}")
    root = writable_store(f"recovery-config-{version}/base-CFG")
    half = (root / "config/consumerOffset.json").stat().st_size // 2
    apply_mutation(root, mutations["CFG/cfg-offset-truncated-nobak"], abort=False)
    assert (root / "config/consumerOffset.json").stat().st_size == half
    assert not (root / "config/consumerOffset.json.bak").exists()


def test_flip_changes_one_bit_of_one_byte(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("recovery-5.4.0/base-A")
    log = root / "commitlog/00000000000000000000"
    before = log.read_bytes()
    apply_operation(root, read_catalogue("recovery-5.4.0")["A/body-flip@seg0-first"].operations[0])
    after = log.read_bytes()
    assert [(at, a, b) for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [(139, 0x1B, 0x13)]


WRONG = [
    {"op": "write", "path": "file", "offset": 1, "hex": "ff", "before": "00"},
    {"op": "zero", "path": "file", "offset": 1, "len": 1, "before": "00"},
    {"op": "flip", "path": "file", "offset": 1, "bit": 0, "before": "00", "after": "62"},
    {"op": "flip", "path": "file", "offset": 1, "bit": 0, "before": "61", "after": "62"},
]


@pytest.mark.parametrize("operation", WRONG)
def test_wrong_bytes_are_refused(operation: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"aaa")
    with pytest.raises(AssertionError, match=r"file at 1"):
        apply_operation(tmp_path, operation)
    assert (tmp_path / "file").read_bytes() == b"aaa"


@pytest.mark.parametrize("present", [True, False])
def test_abort_is_made_present_or_absent(present: bool, tmp_path: Path) -> None:
    for prepare in (lambda path: None, lambda path: path.write_bytes(b"9"), lambda path: path.mkdir()):
        prepare(tmp_path / "abort")
        set_abort(tmp_path, present)
        assert (tmp_path / "abort").exists() is present
        set_abort(tmp_path, False)


def test_abort_of_a_killed_broker_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "abort").write_bytes(b"1234")
    set_abort(tmp_path, True)
    assert (tmp_path / "abort").read_bytes() == b"1234"


def test_a_mutation_may_keep_its_own_abort(tmp_path: Path) -> None:
    apply_mutation(tmp_path, read_catalogue("recovery-5.3.3")["A/abort-dir"], abort=False)
    assert (tmp_path / "abort").is_dir()
