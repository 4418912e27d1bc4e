"""Magic numbers and system flags."""

from __future__ import annotations

import pytest

from rmqtool.formats.codes import MAGIC_WORDS, SysFlag, TransactionType, sys_flag_words, transaction_type
from tests.support import builders


@pytest.mark.parametrize(
    ("sys_flag", "words"),
    [
        (0, "none"),
        (0x001, "COMPRESSED(ZLIB)"),
        (0x101, "COMPRESSED(LZ4)"),
        (0x201, "COMPRESSED(ZSTD)"),
        (0x301, "COMPRESSED(ZLIB)"),
        (0x501, "COMPRESSED(codec 5)"),
        (0x002, "MULTI_TAGS"),
        (0x004, "TRANSACTION_PREPARED"),
        (0x008, "TRANSACTION_COMMIT"),
        (0x00C, "TRANSACTION_ROLLBACK"),
        (0x030, "BORN_HOST_V6 | STORE_HOST_V6"),
        (0x0C0, "NEED_UNWRAP | INNER_BATCH"),
        (0x100, "unknown 0x100"),
        (0x1800, "unknown 0x1800"),
        (0x10B | 0x10000, "COMPRESSED(LZ4) | MULTI_TAGS | TRANSACTION_COMMIT | unknown 0x10000"),
        (-1, sys_flag_words(0x7FF) + " | unknown 0xfffff800"),
    ],
)
def test_words_of_a_system_flag(sys_flag: int, words: str) -> None:
    assert sys_flag_words(sys_flag) == words


@pytest.mark.parametrize("sys_flag", [0, 0x4, 0x8, 0xC])
def test_transaction_type(sys_flag: int) -> None:
    assert transaction_type(sys_flag | 0xFF3) is TransactionType(sys_flag)
    assert transaction_type(~0xC | sys_flag) is TransactionType(sys_flag)


def test_flags_are_open() -> None:
    assert int(SysFlag(1 << 20 | 1)) == 1 << 20 | 1
    assert {builders.MAGIC_V1, builders.MAGIC_V2, builders.MAGIC_BLANK} == set(MAGIC_WORDS)
