"""The rules of ``java.util.Properties.load``; the expectations are those of its documentation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.config import decode_properties, encode_properties
from rmqtool.findings import Severity


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t\f : \t1", {"a": "1"}),
        ("  a  =  1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("a==1", {"a": "=1"}),
        ("a = : 1", {"a": ": 1"}),
        ("# a=1\n! b=2\n \t# c=3\n\n\r\nd=4", {"d": "4"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("fruits  apple, banana, \\\n        pear, \\\n   melon", {"fruits": "apple, banana, pear, melon"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment does not go on \\\na=1", {"a": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n# a comment\n\\\n\na=1", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\r\\f\\q\\\"\\'", {"a": "\t\n\r\fq\"'"}),
        ("a=\\u0041\\u00e9\\u4F60", {"a": "A\u00e9\u4f60"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=\\\\u0041", {"a": "\\u0041"}),
        ("a=\\u0041b", {"a": "Ab"}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text) == (expected, [])


def test_each_byte_is_one_latin_character_and_utf8_is_reported() -> None:
    values, [finding] = decode_properties("brokerName=é".encode(), "conf/broker.conf")
    assert values == {"brokerName": "Ã©"}
    assert (finding.code, finding.severity, finding.file) == ("CF-CONF", Severity.NOTICE, "conf/broker.conf")
    assert decode_properties("brokerName=é".encode("iso-8859-1")) == ({"brokerName": "é"}, [])


def test_a_malformed_unicode_escape_is_an_error_that_names_its_line() -> None:
    values, findings = decode_properties("a=1\n\npath=C:\\users\\store\nb=\\u12G4")
    assert values["path"] == "C:\\usersstore"
    assert [finding.severity for finding in findings] == [Severity.ERROR] * 2
    assert [found.data["line"] for found in findings] == [3, 4]
    assert findings[0].consequence == "a broker does not start with this file"


def test_the_last_line_of_a_key_counts_and_the_second_is_reported() -> None:
    values, [finding] = decode_properties("a=1\nb=2\na=3\n")
    assert values == {"a": "3", "b": "2"}
    assert (finding.severity, finding.data) == (Severity.NOTICE, {"line": 3})


def test_encoding_escapes_what_java_would_read_otherwise() -> None:
    encoded = encode_properties({"a b": " x=1#!:\\", "c": "tab\tnew\n", "d": "é\U0001f600"}, ("say: 你",))
    assert encoded == ("# say: \\u4F60\na\\ b=\\ x\\=1\\#\\!\\:\\\\\nc=tab\\tnew\\n\nd=\\u00E9\\uD83D\\uDE00\n")


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=4))
def test_what_was_encoded_is_decoded_again(values: dict[str, str]) -> None:
    encoded = encode_properties(values)
    assert encoded.isascii()
    assert decode_properties(encoded.encode("ascii")) == (values, [])


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_garbage_is_read_without_an_exception(data: bytes | str) -> None:
    values, _ = decode_properties(data)
    assert all(isinstance(key, str) for key in values)
