"""Paths as people spell them, and what is not a local path."""

from __future__ import annotations

import pytest

from rmqtool.errors import UsageError
from rmqtool.exports.choice import local_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/store", "/data/store"),
        ("lake/a%20b", "lake/a%20b"),
        ("file:///data/store", "/data/store"),
        ("FILE://localhost/data/topic=%25RETRY", "/data/topic=%25RETRY"),
        ("file:/data/store", "/data/store"),
        ("a:b/c", "a:b/c"),
    ],
)
def test_paths_of_this_machine(text: str, path: str) -> None:
    assert local_path(text) == path


@pytest.mark.parametrize(
    "text", ["s3://bucket/lake", "hdfs://head:9000/x", "abfs+x://a", "file://other/data", "file://"]
)
def test_other_filesystems_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a local path") as refused:
        local_path(text)
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("mount it")
