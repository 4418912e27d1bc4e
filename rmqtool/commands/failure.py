"""The message when a command fails."""

from __future__ import annotations

import shutil
import sys

from rmqtool.errors import RmqtoolError


def tell(error: RmqtoolError, *, as_json: bool) -> None:
    """Write the error that stopped the command to stderr: in words, or as one JSON object for programs."""
    from rmqtool.commands.store_word import typeable
    from rmqtool.render.failure import failure_json, failure_text

    if error.hint is not None:
        error.hint = typeable(error.hint)
    if sys.stderr is not None:
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        sys.stderr.write(failure_json(error) if as_json else failure_text(error, width))
        sys.stderr.flush()
