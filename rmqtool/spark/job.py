"""Export with Spark: Spark schedules the tasks, which write with pyarrow; the driver checks and commits."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from rmqtool.errors import OptionalMissing, RmqtoolError, WriteFailed
from rmqtool.exports.run import Answers, Job, Outcome, Request, run_export
from rmqtool.exports.splits import WriteWork, pack_queues, require_same_target, require_same_view, unpack_queues
from rmqtool.log.ranges import Answered, Effort, iter_answers
from rmqtool.log.read import Note, Range
from rmqtool.spark.session import require_pyspark, session

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext, SparkJobInfo

_PATIENCE = 0.2
_PACKED = (
    "pack an environment for them (docs/spark.md, On a cluster): --conf spark.archives=environment.tar.gz#environment "
    "--conf spark.pyspark.python=./environment/bin/python"
)
# Messages of Spark about workers that cannot run, and what to do.
_NO_WORKER = (
    (re.compile(r"(?:ModuleNotFoundError|ImportError): ([^\n]*)"), "a package is missing in the executors' Python: {}"),
    (re.compile(r"(PYTHON_VERSION_MISMATCH[^\n]*)"), "the executors run another Python than this one: {}"),
    (re.compile(r"(Cannot run program [^\n]*)"), "the executors have no such Python: {}"),
)

# The number of the job, the range, and the queues by which it is read, packed.
Task = tuple[int, Range, bytes | None]


def run_spark_export(request: Request, master: str, conf: Mapping[str, str], effort: Effort) -> Outcome:
    """Export in a Spark session at ``master``; output of the JVM is kept off the terminal."""
    return run_export(request, partial(_run_jobs, master, conf, effort))


def _run_jobs(master: str, conf: Mapping[str, str], effort: Effort, jobs: Sequence[Job]) -> Generator[Answers]:
    tasks: list[Task] = []
    works: list[WriteWork] = []
    for number, job in enumerate(jobs):
        packed = pack_queues(job.source)
        tasks += [(number, asked, packed) for asked in job.source.ranges]
        # The works are sent to every task.
        works.append(job.work if packed is None else replace(job.work, queues=()))
    answers = iter(_run_tasks(master, conf, effort, works, tasks) if tasks else [])
    for job in jobs:
        yield _in_order(job, answers)


def _in_order(job: Job, answers: Iterator[Answered]) -> Answers:
    """Yield the answers in the order of the log, and a note about splits that are read again here."""
    again: list[Range] = []

    def read_here(asked: Range) -> Answered:
        again.append(asked)
        return job.work(asked)

    yield from iter_answers(job.source.plan, job.source.ranges, read_here, answers)
    if again:
        first = f"{again[0].file.name}@{again[0].start}"
        yield Note(
            f"{len(again)} of {len(job.source.ranges)} splits of {job.source.broker} were read again by the driver, the"
            f" first from {first} on: bodies there contain bytes that look like records"
        )


def _run_tasks(
    master: str, conf: Mapping[str, str], effort: Effort, works: list[WriteWork], tasks: list[Task]
) -> list[Answered]:
    """Return the answers to all tasks, in their order; raise the first error of a task."""
    with _context(master, conf) as context:
        tried = context.parallelize(tasks, len(tasks)).mapPartitions(partial(_try_all, works))
        results = _collect(context, tried, len(tasks), effort)
    for result in results:
        if isinstance(result, RmqtoolError):
            raise result
    return results


def _try_all(works: Sequence[WriteWork], tasks: Iterable[Task]) -> Iterator[Answered | RmqtoolError]:
    """Do tasks in an executor.

    A problem of a store or disk is an answer, because a second attempt would fail in the same way.
    """
    for number, asked, packed in tasks:
        try:
            work = works[number] if packed is None else replace(works[number], queues=unpack_queues(packed))
            require_same_view(asked)
            require_same_target(work.staging)
            yield work(asked)
        except RmqtoolError as error:
            yield error


@contextmanager
def _context(master: str, conf: Mapping[str, str]) -> Iterator[SparkContext]:
    """Yield the context of the active session, or of one that lives as long as the export."""
    require_pyspark()
    from pyspark import SparkContext

    started = SparkContext._active_spark_context is None
    with tempfile.TemporaryFile(prefix="rmqtool-spark-") as log:
        spark = session(master, conf, log=log)
        try:
            yield spark.sparkContext
        finally:
            if started:
                spark.stop()


def _collect(context: SparkContext, tried: RDD[Any], count: int, effort: Effort) -> list[Any]:
    """Return the answers of the tasks and report progress meanwhile; an interrupt ends the tasks."""
    from pyspark import InheritableThread

    progress = effort.progress
    group = f"rmqtool-{uuid4()}"
    found: Future[list[Any]] = Future()

    def run() -> None:
        context.setJobGroup(group, "rmqtool export", interruptOnCancel=True)
        try:
            found.set_result(tried.collect())
        except Exception as error:
            found.set_exception(error)

    InheritableThread(target=run, daemon=True).start()
    progress.start("exporting", count, "splits")
    done = 0
    try:
        while not found.done():
            wait([found], _PATIENCE)
            now = _count_done(context, group)
            progress.advance(now - done)
            done = now
        return found.result()
    except Exception as error:
        raise _in_a_sentence(error) from error
    finally:
        progress.finish()
        if not found.done():
            context.cancelJobGroup(group)


def _count_done(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    stages = [stage for job in tracker.getJobIdsForGroup(group) for stage in _stages(tracker.getJobInfo(job))]
    infos = [tracker.getStageInfo(stage) for stage in stages]
    return sum(info.numCompletedTasks for info in infos if info is not None)


def _stages(info: SparkJobInfo | None) -> list[int]:
    return list(info.stageIds) if info is not None else []


def _in_a_sentence(error: Exception) -> RmqtoolError:
    """Return Spark's error in one sentence, without the stack traces of two machines."""
    text = str(error)
    for expression, sentence in _NO_WORKER:
        found = expression.search(text)
        if found is not None:
            return OptionalMissing(sentence.format(found[1]), hint=_PACKED)
    said = [line for line in text.splitlines() if line.strip()]
    return WriteFailed(
        f"Spark stopped the export: {said[0] if said else type(error).__name__}",
        hint="the target was left unchanged; --engine local exports without Spark",
    )
