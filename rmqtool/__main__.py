"""``python -m rmqtool``, and the command ``rmqtool``."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line, or answer a shell that completes one: the latter loads next to nothing."""
    if os.environ.get("_RMQTOOL_COMPLETE", "").startswith("complete_"):
        from rmqtool.commands.completion import answer

        return answer()
    # The import of numpy starts a thread for each processor, which spins for 50 ms. Nothing here uses these threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rmqtool.cli import main as run
    from rmqtool.engine.interrupts import end_as_asked, listen

    listen()
    status = run()
    end_as_asked()
    return status


if __name__ == "__main__":
    sys.exit(main())
