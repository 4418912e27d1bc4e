"""Where a store's log lies, found without a look at what else is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.log.sources import directories_of, read_store_directories
from rmqtool.store.open import open_store
from tests.support.stores import STORES


@pytest.mark.parametrize("name", STORES)
def test_log_is_found_where_it_lies(name: str, store: Callable[[str], Path]) -> None:
    with open_store(str(store(name))) as opened:
        assert opened.listing.files
        assert read_store_directories(str(store(name))).directories == directories_of(opened)
