"""Pieces of a buffer as columns, and Java's hash of many."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool import kernel
from rmqtool.columns.hashes import Hashes, java_hashes
from rmqtool.columns.pieces import as_text, coded, coded_texts, pieces, values_of
from rmqtool.formats.java import decode_text
from tests.support.builders import java_hash

DATA = np.frombuffer(b"alphabetagammadelta", np.uint8)

BYTES = st.one_of(
    st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=12),
    st.lists(st.sampled_from([b"\xed\xa0", b"\x80", b"\xf0\x9d\x84\x9e", b"a", b"\xff", b"\xc3", b"\xe2\x82"])).map(
        b"".join
    ),
)


def column(values: list[bytes]) -> pa.LargeBinaryArray:
    return pa.array(values, pa.large_binary())


def test_any_order_overlapping_and_empty() -> None:
    offsets, lengths = np.array([14, 0, 5, 0, 19]), np.array([5, 5, 4, 9, 0])
    found = pieces(DATA, offsets, lengths)
    assert found.to_pylist() == [b"delta", b"alpha", b"beta", b"alphabeta", b""]
    found.validate(full=True)


def column_hashes(values: pa.LargeBinaryArray) -> Hashes:
    data, offsets = values_of(values)
    return java_hashes(data, offsets[:-1], np.diff(offsets))


def test_absent_is_null() -> None:
    found = pieces(DATA, np.array([0, 5]), np.array([0, 4]), np.array([False, True]))
    assert found.to_pylist() == [None, b"beta"]


def test_none() -> None:
    found = pieces(DATA, np.empty(0, np.int64), np.empty(0, np.int64))
    assert found.to_pylist() == []
    values, offsets = values_of(found)
    assert (values.tolist(), offsets.tolist()) == ([], [0])
    assert column_hashes(found).hashes.tolist() == []


def test_values_of_a_part_of_a_column() -> None:
    part = column([b"a", b"bb", b"", b"ccc"]).slice(1, 2)
    values, offsets = values_of(part)
    assert [values[a:b].tobytes() for a, b in itertools.pairwise(offsets)] == [b"bb", b""]


@given(st.lists(BYTES))
def test_text_is_javas(values: list[bytes]) -> None:
    assert as_text(column(values)).to_pylist() == [decode_text(value) for value in values]


def test_text_keeps_nulls_beside_malformed() -> None:
    assert as_text(pa.array([None, b"\xff", b"ok"], pa.large_binary())).to_pylist() == [None, "\ufffd", "ok"]


def test_coded() -> None:
    found = coded(column([b"b", b"a", b"b", b""]))
    assert found.values == [b"b", b"a", b""]
    assert found.codes.tolist() == [0, 1, 0, 2]
    assert found.each(len, np.int64).tolist() == [1, 1, 1, 0]


def test_texts_that_differ_as_bytes_only_are_one() -> None:
    data = np.frombuffer(b"\xffx\xfex", np.uint8)
    found = coded_texts(data, np.array([0, 1, 2, 3]), np.array([1, 1, 1, 1]))
    assert found.values == ["\ufffd", "x"]
    assert found.codes.tolist() == [0, 1, 0, 1]


@given(st.lists(BYTES, max_size=40))
def test_texts_are_numbered_by_the_kernel_as_by_arrow(values: list[bytes]) -> None:
    values = values + values[::2]
    lengths = np.array([len(value) for value in values], np.int64)
    offsets = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(values), np.uint8)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for native in (kernel.NATIVE, None):
            patch.setattr(kernel, "NATIVE", native)
            one = coded_texts(data, offsets, lengths)
            found.append((one.codes.tolist(), one.values))
    assert found[0] == found[1]
    assert [found[0][1][code] for code in found[0][0]] == [decode_text(value) for value in values]


def test_more_texts_than_the_kernel_numbers() -> None:
    data = np.frombuffer(b"".join(b"%05d" % number for number in range(5000)), np.uint8)
    found = coded_texts(data, np.arange(0, 25_000, 5), np.full(5000, 5))
    assert found.codes.tolist() == list(range(5000))
    assert found.values[4999] == "04999"


@given(st.lists(BYTES), st.sampled_from(["", "Topic#", "Тема#", "a" * 100]))
def test_hashes_are_javas(values: list[bytes], prefix: str) -> None:
    found = column_hashes(column(values))
    texts = [decode_text(value) for value in values]
    assert found.hashes.view(np.int32).tolist() == [java_hash(text) for text in texts]
    prefixes = np.full(len(values), java_hash(prefix) & 0xFFFFFFFF, np.uint32)
    assert found.behind(prefixes).view(np.int32).tolist() == [java_hash(prefix + text) for text in texts]


@pytest.mark.parametrize("seed", range(3))
def test_hashes_of_texts_of_all_lengths(seed: int) -> None:
    rng = random.Random(seed)
    texts = ["".join(rng.choices("abcXYZ019-_", k=rng.choice((0, 1, 7, 31, 32, 33, 44, 64, 500)))) for _ in range(300)]
    texts += ["k" * 40_000, "é" * 9000, "vlsoaerz"]
    found = column_hashes(column([text.encode() for text in texts]))
    assert found.hashes.view(np.int32).tolist() == [java_hash(text) for text in texts]


@pytest.mark.parametrize("length", [1, 4, 31, 32, 33, 300, 40_000])
def test_hashes_of_texts_of_one_length(length: int) -> None:
    rng = random.Random(length)
    texts = ["".join(rng.choices("abcXYZ019-_", k=length)) for _ in range(120)]
    found = column_hashes(column([text.encode() for text in texts]))
    assert found.hashes.view(np.int32).tolist() == [java_hash(text) for text in texts]


def test_hash_vectors() -> None:
    """The vectors of the specification."""
    vectors = {"": 0, "TagA": 2598919, "TagABCDEF": -1105932195, "中文": 646394, "\U0001d11e": 1772394}
    vectors["TopicTest#vlsoaerz"] = -(1 << 31)
    found = column_hashes(column([text.encode() for text in vectors])).hashes.view(np.int32).tolist()
    assert found == list(vectors.values())
