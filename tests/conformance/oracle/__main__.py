"""The oracle on the command line; README.md beside this file says what the answers hold.

VERSION is 4.9.7, 4.9.8, 5.3.3 or 5.4.0; STORE a storePathRootDir, which is never touched. CFG and Q may be truth files.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.oracle.comparison import differences
from tests.conformance.oracle.packages import VERSIONS, OracleError, prepare
from tests.conformance.oracle.runs import run_broker, settings_of, start, truth

_SETTING = re.compile(r"[A-Za-z][\w.]*=.*", re.DOTALL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.oracle", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="fetch the packages and compile (done on first use anyway)")
    setup.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS)
    asked = commands.add_parser("truth", help="what the real classes answer about a store")
    started = commands.add_parser("start", help="load, recover, start, read all, stop: what happened")
    broker = commands.add_parser("broker", help="a real name server, broker and clients on the store")
    for command in (asked, started, broker):
        command.add_argument("version", metavar="VERSION", choices=VERSIONS)
        command.add_argument("store", metavar="STORE", type=Path)
        command.add_argument("out", metavar="OUT.json", type=Path)
        command.add_argument("--config", metavar="CFG", type=Path, help="settings")
    asked.add_argument("--queries", metavar="Q", type=Path)
    asked.add_argument("--put", action="store_true", help="append to every queue and find it again")
    broker.add_argument("seconds", metavar="SECONDS", type=int)
    broker.add_argument("--clients", metavar="FILE", type=Path)
    for command in (started, broker):
        command.add_argument("--keep", metavar="DIR", type=Path, help="receives the store as it was left")
        command.epilog = "KEY=VALUE words are settings, too, and go before those of CFG."
    equal = commands.add_parser("equal", help="compare two truth files; 0 when equal")
    equal.add_argument("one", type=Path)
    equal.add_argument("other", type=Path)
    return parser


def _run(words: Sequence[str]) -> int:
    settings = dict(word.split("=", 1) for word in words if _SETTING.fullmatch(word))
    given = _parser().parse_args([word for word in words if not _SETTING.fullmatch(word)])
    if given.command == "setup":
        for version in given.versions:
            print(version, prepare(version))
        return 0
    if given.command == "equal":
        found = differences(given.one, given.other)
        print("\n".join(found) or "equal")
        return 1 if found else 0
    if given.command == "truth":
        if settings:
            raise OracleError("truth takes its settings from --config")
        return truth(given.version, given.store, given.out, config=given.config, queries=given.queries, put=given.put)
    settings = (settings_of(given.config) if given.config else {}) | settings
    if given.command == "start":
        return start(given.version, given.store, given.out, keep=given.keep, settings=settings)
    return run_broker(
        given.version,
        given.store,
        given.out,
        given.seconds,
        clients=given.clients,
        keep=given.keep,
        settings=settings,
    )


def main(words: Sequence[str]) -> int:
    """Run one command; 2 when it cannot be answered."""
    try:
        return _run(words)
    except OracleError as error:
        print(f"oracle: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
