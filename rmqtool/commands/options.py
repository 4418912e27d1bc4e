"""The common options: the same names, letters and meanings in all commands.

A command names the groups it wants as parameters (``scope: Scope, show: Show``); ``spread`` makes them options. An
option of a single command uses an alias from here if there is one, so that a letter never means two things.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from rmqtool.api.store import Version
from rmqtool.errors import UsageError
from rmqtool.times import now_ms, parse_period, parse_zone

if TYPE_CHECKING:
    from rmqtool.api.cluster import Cluster
    from rmqtool.api.store import Place
    from rmqtool.api.store import Store as ApiStore
    from rmqtool.api.wanted import Working
    from rmqtool.progress import Progress
    from rmqtool.render.output import Look, Output

_MESSAGES = "Which messages"
_OUTPUT = "Output"
_WORK = "Work"
_BROKER = "Broker"


class When(StrEnum):
    """The values of ``--progress`` and ``--color``."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def _number(option: str, least: int = 0) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if option == "--limit" and ":" in text:
            raise UsageError(
                f'-n is --limit here and takes a number, not "{text}"',
                hint="name the directory of the store first: no name server is asked",
            )
        try:
            number = int(text)
        except ValueError:
            raise UsageError(
                f'{option} takes a whole number, not "{text}"', hint=f"for example: {option} {max(least, 10)}"
            ) from None
        if number < least:
            raise UsageError(f"{option} {number} is too small", hint=f"the minimum is {least}")
        return number

    return parse


def _option(*names: str, help: str, panel: str, **more: Any) -> Any:  # noqa: A002  (Typer's own word)
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def store_and(metavar: str, help: str) -> Any:  # noqa: A002
    """Return the argument of a command that takes words after STORE, for ``store_word.choose_store``."""
    return typer.Argument(metavar=f"[STORE] {metavar}", help=help, show_default=False)


STORE_HELP = (
    "A store's root, a broker.conf, a log or queue directory, or a file. Default: $RMQTOOL_STORE, then ~/store."
)

Store = Annotated[str | None, typer.Argument(metavar="STORE", help=STORE_HELP, show_default=False)]

Topics = Annotated[
    list[str] | None,
    _option("-t", "--topic", metavar="TOPIC", panel=_MESSAGES, help="Read only this topic; * and ? match; repeatable."),
]
Topic = Annotated[str | None, _option("-t", "--topic", metavar="TOPIC", panel=_MESSAGES, help="The topic.")]
Queue = Annotated[
    int | None,
    _option(
        "-q",
        "--queue",
        metavar="N",
        parser=_number("--queue"),
        panel=_MESSAGES,
        help="Read only the queue of this number.",
    ),
]
ToQueue = Annotated[
    int | None,
    _option(
        "-q",
        "--queue",
        metavar="N",
        parser=_number("--queue"),
        panel=_MESSAGES,
        help="Write to the queue of this number; default: in turn.",
    ),
]
Group = Annotated[str | None, _option("-g", "--group", metavar="GROUP", panel=_MESSAGES, help="The consumer group.")]
Begin = Annotated[
    str | None, _option("-b", "--begin", metavar="TIME", panel=_MESSAGES, help="Stored at this time or later.")
]
End = Annotated[str | None, _option("-e", "--end", metavar="TIME", panel=_MESSAGES, help="Stored before this time.")]
Offset = Annotated[
    int | None,
    _option("-o", "--offset", metavar="N", panel=_MESSAGES, help="Begin at this queue offset; -N: the last N."),
]
FromOffset = Annotated[
    int | None,
    _option(
        "-o",
        "--offset",
        metavar="N",
        parser=_number("--offset"),
        panel=_MESSAGES,
        help="Begin at this queue offset in each queue.",
    ),
]
Limit = Annotated[
    int | None,
    _option("-n", "--limit", metavar="N", parser=_number("--limit"), panel=_MESSAGES, help="Stop after N rows."),
]
Tag = Annotated[
    str | None, _option("--tag", metavar="EXPR", panel=_MESSAGES, help="Select by tags, as in 'TagA || TagB'.")
]
Key = Annotated[str | None, _option("--key", metavar="KEY", panel=_MESSAGES, help="Select messages with this key.")]
Where = Annotated[
    str | None, _option("--where", metavar="SQL", panel=_MESSAGES, help="Select with RocketMQ's SQL92 subset.")
]

Json = Annotated[bool, _option("--json", panel=_OUTPUT, help="Print one JSON document.")]
Jsonl = Annotated[bool, _option("--jsonl", panel=_OUTPUT, help="Print one JSON object per line.")]
JsonlBothWays = Annotated[bool, _option("--jsonl", panel=_OUTPUT, help="Read and print one JSON object per line.")]
CsvBothWays = Annotated[bool, _option("--csv", panel=_OUTPUT, help="Read and print CSV with a header line.")]
Csv = Annotated[bool, _option("--csv", panel=_OUTPUT, help="Print CSV with a header line.")]
TemplateText = Annotated[
    str | None,
    _option("--template", metavar="TEXT", panel=_OUTPUT, help=r"Print one line per row: '{topic}/{queueId} {keys}\n'."),
]
Color = Annotated[When, _option("--color", metavar="auto|always|never", panel=_OUTPUT, help="Colour.")]
Zone = Annotated[str, _option("--tz", metavar="ZONE", panel=_OUTPUT, help="Time zone: local, UTC, +08:00 or a name.")]
Verbose = Annotated[
    int,
    _option(
        "-v",
        "--verbose",
        count=True,
        show_default=False,
        panel=_OUTPUT,
        help="Print more to stderr; repeat for even more.",
    ),
]
Quiet = Annotated[bool, _option("--quiet", panel=_OUTPUT, help="Print no notes to stderr.")]


# Of a scan a sixth or more is Python's own work, which threads do in turns: more of them only wait, and hold memory.
_MOST_THREADS = 8


def _jobs(words: str) -> Any:
    return _option("-j", "--jobs", metavar="N", parser=_number("--jobs", 1), panel=_WORK, help=words)


Jobs = Annotated[int | None, _jobs("Number of threads; default: one per processor, up to 8.")]
Programs = Annotated[int | None, _jobs("Number of threads or --exec programs; default: one per processor, up to 8.")]
ProgressWhen = Annotated[
    When, _option("--progress", metavar="auto|always|never", panel=_WORK, help="Show progress on stderr.")
]

AsVersion = Annotated[
    Version | None,
    _option("--as", metavar="4.9|5.3|5.4", panel=_BROKER, help="Broker version; default: guessed from the store."),
]
AsNewVersion = Annotated[
    Version | None, _option("--as", metavar="4.9|5.3|5.4", panel=_BROKER, help="Broker version; default: 5.3.")
]
Conf = Annotated[
    list[str] | None,
    _option("--conf", metavar="KEY=VALUE", panel=_BROKER, help="Override a setting of broker.conf; repeatable."),
]
OnError = Annotated[
    Literal["skip", "stop"] | None,
    typer.Option("--on-error", metavar="skip|stop", help="What to do if input is not a message."),
]
Delay = Annotated[
    str | None,
    typer.Option("--delay", metavar="LEVEL|SPAN", help="Deliver after a delay: a level, or a time such as 90s, 2h."),
]
Outcome = Annotated[
    str | None,
    typer.Option(
        "--tx",
        metavar="commit|rollback|pending",
        help="Send as a transaction of group -g: commit, roll back or leave pending.",
    ),
]
CredentialsFile = Annotated[
    str | None,
    _option("--credentials", metavar="FILE", panel=_BROKER, help="Keys for a live cluster: accessKey=, secretKey=."),
]
RetryUnknown = Annotated[
    bool,
    _option("--retry-unknown", panel=_BROKER, help="Send again if the answer of a cluster is lost; may store twice."),
]
Tls = Annotated[bool, _option("--tls", panel=_BROKER, help="Speak TLS with a live cluster.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which topics and queue."""

    topic: Topics = None
    queue: Queue = None

    def asked(self) -> dict[str, Any]:
        """Return the keywords of the question."""
        return {"topics": self.topic, "queue": self.queue}


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Which store times."""

    begin: Begin = None
    end: End = None

    def bounds(
        self, zone_name: str, now: int | None = None, *, may_be_empty: bool = False
    ) -> tuple[int | None, int | None]:
        """Return the half-open range in epoch milliseconds; ``zone_name`` is that of ``--tz``."""
        at = now_ms() if now is None else now
        return parse_period(self.begin, self.end, now=at, zone=parse_zone(zone_name), may_be_empty=may_be_empty)

    def asked(self, zone_name: str, *, may_be_empty: bool = False) -> dict[str, Any]:
        """Return the keywords of the question."""
        begin, end = self.bounds(zone_name, may_be_empty=may_be_empty)
        return {"begin": begin, "end": end}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which messages, by their tags, keys and properties."""

    tag: Tag = None
    key: Key = None
    where: Where = None

    def asked(self) -> dict[str, Any]:
        """Return the keywords of the question."""
        return {"tags": self.tag, "key": self.key, "where": self.where}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsBroker:
    """The broker whose behaviour and settings are used."""

    as_version: AsVersion = None
    conf: Conf = None

    def store(self, path: str) -> ApiStore:
        """Return the store at ``path`` with this broker's behaviour and settings."""
        from rmqtool.api.store import Store

        return Store(path, version=self.as_version, conf=self.conf)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOrCluster(AsBroker):
    """The broker whose behaviour is used, or how a live cluster is reached."""

    credentials: CredentialsFile = None
    tls: Tls = False

    def place(self, path: str) -> Place:
        """Return the store at ``path``, or the live cluster."""
        from rmqtool.api.cluster import Cluster
        from rmqtool.api.store import is_remote

        if not is_remote(path):
            given = {"--credentials": self.credentials, "--tls": self.tls or None}
            refuse_idle("a store in files", given, "they are for a live cluster, rocketmq://HOST:9876")
            return self.store(path)
        refuse_idle(
            "a live cluster", {"--as": self.as_version, "--conf": self.conf or None}, "its brokers have their own"
        )
        return Cluster(path, credentials=self.credentials, tls=self.tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCluster:
    """How a live cluster is reached, for a command that asks no broker's rules of a store."""

    credentials: CredentialsFile = None
    tls: Tls = False

    def place(self, path: str) -> Place:
        """Return the path of a store, or the live cluster."""
        from rmqtool.api.store import is_remote

        found = BrokerOrCluster(credentials=self.credentials, tls=self.tls).place(path)
        return found if is_remote(found) else path


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBroker(BrokerOrCluster):
    """The same for a copy, whose source or target may be a cluster; with neither, its options are refused."""

    def target(self, path: str) -> str | Cluster:
        """Return the path of a new store, or the live cluster."""
        from rmqtool.api.cluster import Cluster
        from rmqtool.api.store import is_remote

        return Cluster(path, credentials=self.credentials, tls=self.tls) if is_remote(path) else path

    def sources(self, paths: list[str], target: str | Cluster) -> list[Place]:
        """Return the stores to read, or the live clusters."""
        from rmqtool.api.store import is_remote

        # The options about a cluster are about the target then.
        return [self.place(path) if isinstance(target, str) or is_remote(path) else self.store(path) for path in paths]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCluster(BrokerOrCluster):
    """The same for a producer."""

    retry_unknown: RetryUnknown = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForBroker(AsBroker):
    """The broker version that something new is made for."""

    as_version: AsNewVersion = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """The form of results."""

    json: Json = False
    jsonl: Jsonl = False
    csv: Csv = False
    template: TemplateText = None
    color: Color = When.AUTO
    tz: Zone = "local"
    verbose: Verbose = 0
    quiet: Quiet = False

    @property
    def is_for_people(self) -> bool:
        """Whether people read the result."""
        return not (self.json or self.jsonl or self.csv or self.template is not None)

    def look(self) -> Look:
        """Return the effect of these options on this terminal."""
        from rmqtool.render.output import Look, Mode

        wanted = [mode for mode in Mode if getattr(self, mode, None) not in (None, False)]
        if len(wanted) > 1:
            raise UsageError(
                "only one of " + ", ".join(f"--{mode}" for mode in wanted) + " can be shown", hint=f"--{wanted[0]}"
            )
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        return Look(
            mode=wanted[0] if wanted else Mode.HUMAN,
            template=self.template,
            color=self.color is When.ALWAYS or (self.color is When.AUTO and is_terminal and not plain),
            width=shutil.get_terminal_size().columns if is_terminal or _has_wish() else None,
            zone=parse_zone(self.tz),
            verbose=self.verbose,
            quiet=self.quiet,
        )

    def output(self, shape: str | Iterable[str] | None = None) -> Output:
        """Return the command's output; used as a context.

        A command that writes names the shape of its result, or its fields: a template with another name is refused
        before anything is written.
        """
        from rmqtool.render.output import Output

        output = Output(self.look())
        if shape is not None and self.template is not None:
            from rmqtool.api import shapes

            output.expect(getattr(shapes, shape).__annotations__ if isinstance(shape, str) else shape)
        return output


def _has_wish() -> bool:
    """Return whether COLUMNS names a width: it is meant for a pipe too, where `watch` sets it."""
    wish = os.environ.get("COLUMNS", "")
    return wish.isdecimal() and int(wish) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowAndRead(Show):
    """The form of results, and of the input."""

    jsonl: JsonlBothWays = False
    csv: CsvBothWays = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The options of long work."""

    jobs: Jobs = None
    progress: ProgressWhen = When.AUTO

    def threads(self) -> int:
        """Return the number of threads to use."""
        return self.jobs or min(len(os.sched_getaffinity(0)), _MOST_THREADS)

    def asked(self, output: Output, *places: object) -> Working:
        """Return the number of threads, and the progress bar. One thread reads a live cluster: there -j is refused."""
        from rmqtool.api.store import is_remote

        if any(map(is_remote, places)):
            refuse_idle("a live cluster", {"-j": self.jobs}, "leave it out: one thread asks all brokers at a time")
        return {"jobs": self.threads(), "progress": self.bar(output)}

    def bar(self, output: Output) -> Progress:
        """Return a bar on stderr that takes turns with ``output``, or one that shows nothing."""
        from rmqtool.progress import NoProgress

        shown = sys.stderr is not None and sys.stderr.isatty() and not output.look.quiet
        if self.progress is When.NEVER or (self.progress is When.AUTO and not shown):
            return NoProgress()
        from rmqtool.render.progress import TerminalProgress

        bar = TerminalProgress()
        output.beside(bar)
        return bar


def refuse_idle(what: str, given: Mapping[str, object], hint: str) -> None:
    """Refuse options that have no effect on ``what``."""
    for option, value in given.items():
        if value is not None and value is not False and value != []:
            raise UsageError(f"{option} has no effect on {what}", hint=hint)


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with each parameter that is a group of options replaced by the options of the group."""
    hints = get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters.values()
    groups = {parameter.name: hints[parameter.name] for parameter in own if is_dataclass(hints[parameter.name])}
    parameters: list[inspect.Parameter] = []
    for parameter in own:
        group = groups.get(parameter.name)
        parameters += _members(group) if group else [_named(parameter.name, parameter.default, hints[parameter.name])]

    def gathered(**words: Any) -> Any:
        for name, group in groups.items():
            words[name] = group(**{option.name: words.pop(option.name) for option in fields(group)})
        return function(**words)

    gathered.__doc__ = function.__doc__
    gathered.__name__ = function.__name__
    gathered.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    gathered.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return gathered


def _members(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_named(option.name, option.default, hints[option.name]) for option in fields(group)]


def _named(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
