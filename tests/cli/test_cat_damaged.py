"""``cat`` on every damaged store whose start was recorded: all valid messages, the damage by name, the status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.damaged import VERSIONS, Workshop, mutations, outcomes, sample
from tests.support.schemas import validate
from tests.support.stores import truth

# The size of a record was raised so that it reaches into the next: valid by the rule of the recorded count, which
# looks at each magic by itself. Nobody can put a record there, so here it is damage.
OVERLAP = "A/recordlen-consistent-shift@last-mid"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


def log_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").glob("0*"))


def lost_its_head(root: Path, base: Path) -> bool:
    """Whether the first files are gone, and no others. So they are after every retention: nothing is damaged."""
    before, left = log_files(base), log_files(root)
    gone = [name for name in before if name not in left]
    return 0 < len(gone) < len(before) and gone == before[: len(gone)]


def check(version: str, key: str, workshop: Workshop, capsysbinary) -> list[dict[str, Any]]:
    mutation, told = mutations(version)[key], outcomes(version)[key]
    with workshop.damaged(version, mutation, abort=True) as root:
        status = main(["cat", str(root), "--jsonl"])
        lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        damages = [line["damage"] for line in lines if "damage" in line]
        for damage in damages:
            validate("damage", {"damage": damage})
            if damage["code"] not in ("CL-GAP", "CL-SIZE", "ST-MOUNT"):
                assert damage["offset"] + damage["length"] <= (root / damage["file"]).stat().st_size
        is_retention = lost_its_head(root, workshop.base(version, mutation.base))
    assert (key, len(lines) - len(damages)) == (key, told["valid_in_mutated"] - (key == OVERLAP))
    assert (key, status) == (key, Exit.SKIPPED if damages else Exit.DONE)
    if told["valid_in_mutated"] < told["valid_in_base"] and not is_retention:
        assert damages, f"{key}: messages are gone, and nobody says so"
    return damages


@pytest.mark.parametrize("version", VERSIONS)
def test_a_sample_of_the_damaged_stores(version, workshop, capsysbinary):
    for key in [*sample(version, 10, seed=3), OVERLAP]:
        check(version, key, workshop, capsysbinary)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_damaged_store(version, workshop, capsysbinary):
    for key in sorted(mutations(version)):
        check(version, key, workshop, capsysbinary)


@pytest.mark.parametrize(
    ("key", "code", "file", "offset", "length"),
    [
        # The last of 1500 messages ends at 419893, in the file that begins at 393216.
        ("cl-missing@last", "CL-GAP", "commitlog/00000000000000393216", 0, 26677),
        # The segment is there without a byte: as check, this is called a segment of a wrong size.
        ("cl-empty@last", "CL-SIZE", "commitlog/00000000000000393216", 0, 26677),
        ("cl-missing@last-two", "CL-GAP", "commitlog/00000000000000327680", 0, 92213),
        ("zero-all@last", "CL-MAGIC", "commitlog/00000000000000393216", 0, 26677),
        # Zeros from 9660 on: the record that ends at 9694 lost only properties, which no checksum covers.
        ("fuzz-113", "CL-MAGIC", "commitlog/00000000000000393216", 9694, 16983),
        ("cl-dir-missing", "ST-MOUNT", "commitlog", 0, 0),
        ("cl-missing@all", "ST-MOUNT", "commitlog", 0, 0),
    ],
)
def test_an_end_that_is_gone_is_named_by_the_queues(key, code, file, offset, length, workshop, capsysbinary):
    (damage,) = check("5.3.3", f"A/{key}", workshop, capsysbinary)
    assert [damage[name] for name in ("code", "file", "offset", "length")] == [code, file, offset, length]


def test_a_lock_that_is_no_file_hides_no_message(workshop, capsysbinary):
    assert check("5.3.3", "A/lock-dir", workshop, capsysbinary) == []


@pytest.mark.parametrize("name", ["00000000000000000007", "00000000000000065537"])
def test_a_file_whose_name_claims_the_places_of_another_hides_no_message_in_any_order(
    name, writable_store, capsysbinary
):
    root: Path = writable_store("49-basic")
    (root / "commitlog" / "00000000000000131072").rename(root / "commitlog" / name)
    found = {}
    for order in ("log", "queue", "time"):
        assert main(["cat", str(root), "--jsonl", "--order", order]) == Exit.SKIPPED
        lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        found[order] = sorted(line["commitLogOffset"] for line in lines if "damage" not in line)
        assert {line["damage"]["code"] for line in lines if "damage" in line} == {"CL-PHY", "CL-GAP"}
    assert len(found["log"]) > 500
    assert found["queue"] == found["time"] == found["log"]


@pytest.mark.parametrize("name", ["49-basic", "53-basic"])
def test_a_checksum_of_no_body_hides_no_message(name, writable_store, capsysbinary):
    """Brokers serve such a message, and clients take it: neither compares the checksum of an empty body."""
    root: Path = writable_store(name)
    messages = truth(name)["messages"]
    file = root / "commitlog" / "00000000000000000000"
    empty = next(
        message
        for message in messages[3:]
        if not message["storedBodyLength"] and message["commitLogOffset"] < file.stat().st_size
    )
    with file.open("r+b") as opened:
        opened.seek(empty["commitLogOffset"] + 8)
        opened.write(b"\0\1\0\0")
    assert main(["cat", str(root), "--jsonl"]) == Exit.DONE
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [line["commitLogOffset"] for line in lines] == [message["commitLogOffset"] for message in messages]
    assert main(["check", str(root), "--jsonl", "--only", "CL"]) == Exit.NO
    *found, _ = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    places = [(one["code"], one["offset"]) for one in found if one["severity"] != "notice"]
    assert places == [("CL-HEAD", empty["commitLogOffset"])]
    assert main(["repair", str(root), "--allow", "primary", "--json"]) in (Exit.DONE, Exit.NO)
    steps = json.loads(capsysbinary.readouterr().out)["steps"]
    assert [step for step in steps if step["class"] == "primary"] == []
