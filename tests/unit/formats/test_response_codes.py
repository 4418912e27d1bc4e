"""Response codes by version: three numbers changed their meaning between 4.9 and 5.0."""

from __future__ import annotations

from rmqtool.formats.response_codes import ResponseCode, code_name, codes_of


def test_a_number_has_the_name_of_its_version() -> None:
    assert code_name(210, "4.9") == "DELETE_ACL_CONFIG_FAILED"
    assert code_name(210, "5.3") == "POLLING_TIMEOUT"
    assert code_name(210) == "POLLING_TIMEOUT"
    assert [code_name(code, "4.9") for code in (17, 29, 1500, 9999)] == ["TOPIC_NOT_EXIST", "29", "1500", "9999"]


def test_later_codes_are_not_known_before() -> None:
    assert "INVALID_PARAMETER" not in codes_of("4.9")
    assert codes_of("5.3")["INVALID_PARAMETER"] == 29
    assert "LMQ_QUOTA_EXCEEDED" not in codes_of("5.4")
    assert codes_of("5.5.0")["LMQ_QUOTA_EXCEEDED"] == 2017
    # Counted in the real classes of 4.9.7, 5.3.3, 5.4.0 and 5.5.0.
    assert [len(codes_of(version)) for version in ("4.9.7", "5.3.3", "5.4.0", "5.5.0")] == [37, 66, 66, 68]


def test_every_number_has_one_name() -> None:
    names = codes_of("5.5.0")
    assert len(set(names.values())) == len(names) == len(ResponseCode)
