"""Copies, started by the real classes: they load them, and serve every message that is in them."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.cli.test_copy import OVERLAP
from tests.conformance.oracle.runs import read_json, start_many
from tests.support.damaged import Workshop, mutations, outcomes
from tests.support.recovered import Valid, valid_records
from tests.support.recovery import VERSIONS, base_sizes, sizes_as_words

pytestmark = pytest.mark.conformance
SALVAGED = 6
PIECES = 8


def copied(place: Path, sources: list[Path], *words: str, version: str, base: str = "A") -> Path:
    """Copy into a store of its own."""
    place.mkdir()
    settings = [word for setting in sizes_as_words(base_sizes(version, base)) for word in ("--conf", setting)]
    given = ["copy", *map(str, sources), str(place / "store"), "--as", VERSIONS[version].value, *settings, *words]
    assert main([*given, "--quiet"]) in (Exit.DONE, Exit.SKIPPED)
    return place / "store"


def damaged_variants(version: str) -> list[str]:
    """Return variants that lack messages, but not all."""
    told = outcomes(version)
    usable = [
        key
        for key, one in sorted(mutations(version).items())
        if one.base == "A" and 0 < told[key]["valid_in_mutated"] < told[key]["valid_in_base"]
    ]
    return random.Random(f"copied {version}").sample(usable, SALVAGED)


def by_queue(records: list[Valid]) -> dict[tuple[str, str], list[Valid]]:
    found: dict[tuple[str, str], list[Valid]] = {}
    for record in records:
        if record.dispatched:
            found.setdefault((record.topic, str(record.queue_id)), []).append(record)
    return found


def serve(version: str, stores: dict[str, Path], base: str = "A") -> None:
    """Start the stores; each queue must serve exactly the messages that name it, in their order."""
    outs = {name: root.parent / "out.json" for name, root in stores.items()}
    expected = {name: by_queue(valid_records(root)) for name, root in stores.items()}
    settings = dict(word.split("=") for word in sizes_as_words(base_sizes(version, base)))
    start_many(version, list(stores.values()), list(outs.values()), settings=settings)
    wrong: list[tuple[object, ...]] = []
    for name, out in outs.items():
        answer = read_json(out)
        if answer["load"].get("result") is not True or "running" not in answer:
            wrong.append((name, answer["load"]))
            continue
        queues = {(t, q): one for t, of in answer["running"]["queues"].items() for q, one in of.items()}
        for queue in expected[name].keys() | {queue for queue, one in queues.items() if one["served"]}:
            told = queues.get(queue, {"readable": 0, "served": 0, "servedPhySha256": ""})
            own = sorted(expected[name].get(queue, []), key=lambda record: record.queue_offset)
            digest = hashlib.sha256("".join(f"{record.physical_offset}," for record in own).encode()).hexdigest()
            found = (told["readable"], told["served"], told["servedPhySha256"][:16])
            if found != (len(own), len(own), digest[:16]):
                wrong.append((name, *queue, found, len(own)))
    assert wrong == []


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_the_real_classes_serve_what_was_copied(
    version: str,
    real_classes: Callable[[str], None],
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    real_classes(version)
    workshop = Workshop(tmp_path / "bases")
    workshop.directory.mkdir()
    base = workshop.base(version, "A")
    whole = valid_records(base)
    stores: dict[str, Path] = {}
    for number, key in enumerate(damaged_variants(version)):
        with workshop.damaged(version, mutations(version)[key], abort=True) as root:
            stores[key] = copied(tmp_path / f"salvaged-{number}", [root], "--salvage", version=version)
        assert (key, len(valid_records(stores[key]))) == (key, outcomes(version)[key]["valid_in_mutated"])
    topic = max({record.topic for record in whole}, key=[record.topic for record in whole].count)
    stores["purged"] = copied(tmp_path / "purged", [base], "--purge", topic, version=version)
    left = valid_records(stores["purged"])
    assert 0 < len(left) < len(whole)
    assert topic not in {record.topic for record in left}
    stores["merged"] = copied(tmp_path / "merged", [base, base], version=version)
    assert len(valid_records(stores["merged"])) == 2 * len(whole)
    # What is left out lies between messages then, in every queue.
    stores["tagged"] = copied(tmp_path / "tagged", [base], "--tag", "TagA", version=version)
    assert 0 < len(valid_records(stores["tagged"])) < len(whole) // 2
    capsysbinary.readouterr()
    main(["cat", str(base), "--jsonl", "-j", "1"])
    times = [json.loads(line)["storeTimestamp"] for line in capsysbinary.readouterr().out.splitlines()]
    middle = sorted(times)[len(times) // 2]
    for name, words in (("newer", ()), ("renumbered", ("--renumber",))):
        stores[name] = copied(tmp_path / name, [base], "-b", str(middle), *words, version=version)
        assert len(valid_records(stores[name])) == sum(time >= middle for time in times)
    begins = {records[0].queue_offset for records in by_queue(valid_records(stores["renumbered"])).values()}
    assert begins == {0}
    serve(version, stores)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_the_real_classes_serve_what_was_salvaged_of_every_damaged_store(
    version: str, piece: int, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    """The pieces together are every variant of which anything is left; each can be run alone."""
    real_classes(version)
    workshop = Workshop(tmp_path / "bases")
    workshop.directory.mkdir()
    told = outcomes(version)
    for base, stores in salvaged(version, piece, workshop, tmp_path).items():
        for key, root in stores.items():
            expected = told[key]["valid_in_mutated"] - (key == OVERLAP)
            assert (key, len(valid_records(root))) == (key, expected)
        serve(version, stores, base)


def salvaged(version: str, piece: int, workshop: Workshop, place: Path) -> dict[str, dict[str, Path]]:
    """Salvage the variants of a piece; return the copies by base."""
    keys = sorted(key for key in mutations(version) if outcomes(version)[key]["valid_in_mutated"])
    random.Random(f"salvaged {version}").shuffle(keys)
    found: dict[str, dict[str, Path]] = {}
    for number, key in enumerate(keys[piece::PIECES]):
        mutation = mutations(version)[key]
        with workshop.damaged(version, mutation, abort=True) as root:
            target = copied(place / f"{number}", [root], "--salvage", version=version, base=mutation.base)
        found.setdefault(mutation.base, {})[key] = target
    return found
