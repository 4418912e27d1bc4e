"""``rmqtool recover --apply``: make the store whole, keeping every valid message; then ask what a broker would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqtool.errors import Exit, StoreError

if TYPE_CHECKING:
    from rmqtool.commands.options import AsBroker, Show, Work
    from rmqtool.engine.recovery.report import RecoveryReport
    from rmqtool.store.open import Store


# What must be free before a recovery begins: it makes index and queues again, and deletes the old ones first.
_ROOM = 1 << 20


def apply_recovery(path: str, broker: AsBroker, work: Work, show: Show) -> Exit:
    """Recover the store at ``path`` and say what was done."""
    from rmqtool.render.recover import recovered_lines
    from rmqtool.store.open import open_store

    assignments = tuple(broker.conf or ())
    opened = open_store(path, version=broker.as_version, assignments=assignments)
    with show.output() as output:
        bar = work.bar(output)
        bar.start("recover", sum(segment.size for segment in opened.commit_log), "bytes")
        report = _recover(opened, bar.advance)
        bar.finish()
        opened.close()
        shown = {**report.as_json(), "brokerStart": _broker_start(path, broker)}
        output.single(shown, recovered_lines(output, shown, path))
        if report.missing is not None:
            raise report.missing
    return Exit.DONE


def _recover(opened: Store, advance: Any) -> RecoveryReport:
    from rmqtool.engine.commit_log import LogDirectory
    from rmqtool.engine.parts import Setup
    from rmqtool.engine.recovery.recover import recover
    from rmqtool.files.posix_write import PosixWritableFileSystem

    with PosixWritableFileSystem(opened.root) as files:
        configured = any(directory.startswith("/") for directory in opened.listing.log_directories)
        found = [LogDirectory(files, directory) for directory in opened.listing.log_directories]
        elsewhere = configured or any(segment.filesystem is not opened.filesystem for segment in opened.commit_log)
        setup = Setup(files, opened.config, directories=() if elsewhere else found)
        return recover(setup, advance, room=_ROOM)


def _broker_start(path: str, broker: AsBroker) -> dict[str, object] | None:
    """Return what the next start of a broker would do to the recovered store; None where that cannot be known."""
    from rmqtool.store.open import open_store
    from rmqtool.upstream.rehearsal import rehearse

    opened = open_store(path, version=broker.as_version, assignments=tuple(broker.conf or ()))
    try:
        with rehearse(opened) as rehearsal:
            shown = rehearsal.run().as_json()
    except StoreError:
        return None
    finally:
        opened.close()
    return {name: shown[name] for name in ("as", "loads", "starts", "messagesLost", "messagesUnreachable")}
