"""A page that a command writes in addition to its result: a report, charts."""

from __future__ import annotations

import os
from contextlib import suppress

from rmqtool.errors import WriteFailed


def write_page(path: str, text: str, option: str) -> None:
    """Write the page to a temporary file first, so that it appears whole or not at all; ``option`` named the path."""
    beside = f"{path}.part"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(beside)
        raise WriteFailed(
            f"{path} cannot be written: {error.strerror}", file=path, hint=f"name another place for {option}"
        ) from error
