"""The registry of codes: one entry for one thing, and nobody is left without a word at night."""

from __future__ import annotations

import pytest

from rmqtool.findings import FAMILIES, Severity, broker_text, find_code, iter_codes, new_finding

# The codes that scripts rely on; they are never renamed.
FIXED = [
    "CL-MAGIC",
    "CL-LEN",
    "CL-CRC",
    "CL-PHY",
    "CL-TORN",
    "CL-MID",
    "CL-GAP",
    "CL-SIZE",
    "CL-NAME",
    "CL-STALE",
    "CQ-MISSING",
    "CQ-AHEAD",
    "CQ-BEFORE",
    "CQ-WRONG",
    "CQ-SIZE",
    "CQ-ORPHAN",
    "IX-HEAD",
    "IX-LOOP",
    "IX-WRONG",
    "IX-MISSING",
    "IX-AHEAD",
    "CP-BAD",
    "CP-AHEAD",
    "ST-ABORT",
    "ST-LOCK",
    "ST-MOUNT",
    "ST-FOREIGN",
    "ST-LINK",
    "CF-JSON",
    "CF-BAK",
    "OF-RANGE",
    "BD-INFLATE",
]


def test_the_fixed_codes_are_registered():
    assert [code for code in FIXED if find_code(code) is None] == []


@pytest.mark.parametrize("entry", list(iter_codes()), ids=lambda entry: entry.code)
def test_a_code_that_needs_action_says_why_and_what_to_type(entry):
    assert entry.family in FAMILIES
    assert entry.meaning.endswith(".")
    finding = new_finding(entry.code, "something", severity=Severity.WARNING)
    if entry.severity is not Severity.NOTICE:
        assert finding.consequence
        assert finding.fix
        for version in ("4.9", "5.3", "5.4"):
            of_5_only = all(line.startswith(("5.", "4.9 with")) for line in entry.brokers)
            said = [broker_text(entry, version, abnormal=abnormal) for abnormal in (False, True)]
            assert all(said) or (of_5_only and version == "4.9"), (version, said)
    notice = new_finding(entry.code, "something", severity=Severity.NOTICE)
    assert (notice.consequence, notice.fix) == (None, None)


def test_no_fix_writes_before_its_plan_was_shown():
    """A fix leads the same way as "Next": the plan first, which tells what would be changed."""
    fixes = {entry.fix for entry in iter_codes() if entry.fix and entry.fix.startswith("rmqtool ")}
    assert "rmqtool repair {store}" in fixes
    assert [fix for fix in fixes if "--apply" in fix or "--allow" in fix] == []


def test_a_broker_is_told_apart_by_version_and_by_its_last_stop():
    entry = find_code("CL-CRC")
    assert entry is not None
    texts = {(v, a): broker_text(entry, v, abnormal=a) or "" for v in ("4.9", "5.3", "5.4") for a in (False, True)}
    assert texts["4.9", False].startswith("after a clean stop it reads only the last 3 log files")
    assert texts["5.3", False].startswith("after a clean stop it reads only the last log file")
    assert texts["4.9", True].startswith("after a crash it reads only the log files since the checkpoint")
    assert texts["5.4", True].startswith(
        "after a crash it reads only the log files since the checkpoint, at most the last 10"
    )


def test_what_brokers_do_in_a_rare_case_is_left_to_the_manual():
    entry = find_code("ST-ABORT")
    assert entry is not None
    assert "5.3, 5.4, if abort is a directory: fails after the recovery" in entry.brokers
    assert broker_text(entry, "5.3", abnormal=True) == "recovers as after a crash"


# Words that begin what a broker does, and are not a verb in the third person.
_SUBJECTS = {"cannot", "never", "one", "if", "the", "above"}


def test_what_a_broker_does_is_said_of_the_broker_and_not_to_the_reader():
    """A text such as "scan the last file, delete the rest" reads like an instruction to the reader."""
    firsts = {line.partition(": ")[2].split()[0]: entry.code for entry in iter_codes() for line in entry.brokers}
    assert {code: word for word, code in firsts.items() if not word.endswith("s") and word not in _SUBJECTS} == {}


def test_what_holds_after_one_kind_of_stop_says_after_which():
    for entry in iter_codes():
        for line in entry.brokers:
            who, _, what = line.partition(": ")
            for condition, abnormal in (("after a crash", True), ("after a clean stop", False)):
                if condition in who:
                    told = [broker_text(entry, version, abnormal=abnormal) or "" for version in ("4.9", "5.3", "5.4")]
                    assert any(f"{condition} it {what}" in text for text in told), line
                    others = [broker_text(entry, version, abnormal=not abnormal) or "" for version in ("4.9", "5.4")]
                    assert not any(what in text for text in others), line
