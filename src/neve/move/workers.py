"""Who does the same work for many files of a table: threads, processes, or Spark.

Manifests are decoded in Python, of which one process runs one thread at a time: for many of them
each core has a process of its own. Their work arrives through a pipe, so they end with this process
however that ends, and a script that calls us is not run again, as multiprocessing would.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from neve.errors import ConflictError, StorageError
from neve.move.in_threads import READS_AT_ONCE, in_threads

if TYPE_CHECKING:
    from neve.lake.spark_tasks import TaskRunner

Item = TypeVar("Item")
Result = TypeVar("Result")

# The descriptor, whatever `sys.stderr` is.
_STANDARD_ERROR = 2
# Starting processes takes as long as some hundred manifests.
_FEWEST_FOR_PROCESSES = 256
# Each has 100 MB of its own, and one process has to take what all of them return.
_MOST_PROCESSES = 4
_ITEMS_AT_ONCE = 32
_SPARK_TASKS_PER_CORE = 8


class Workers(Protocol):
    """Do work for many items. Other processes get the work, the items and the results pickled."""

    def results(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield what the work returns for each item, in order.

        Raises:
            NeveError: what the work raised.
        """


class Threads:
    """Threads of this process."""

    def results(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        return in_threads(work, items, READS_AT_ONCE)


@dataclass(frozen=True)
class SparkWorkers:
    """Tasks of Spark."""

    tasks: TaskRunner

    def results(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        # A Spark task for each item would cost more than most items do.
        size = -(-len(items) // (self.tasks.parallelism * _SPARK_TASKS_PER_CORE))
        for results in self.tasks.run(_Group(work), _groups(items, size)):
            yield from results


class Processes:
    """A process for each core, started when there is much to do; threads where there is little.

    May be used by several threads. Close it when nothing is left to do.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = min(count or _cores(), _MOST_PROCESSES)
        self._started: list[_Process] = []
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False

    def results(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        if self._count < 2 or len(items) < _FEWEST_FOR_PROCESSES:
            yield from in_threads(work, items, READS_AT_ONCE)
            return
        self._start()
        # As many requests at a time as by threads, so that distant stores are as fast.
        code = pickle.dumps(_Group(work, -(-READS_AT_ONCE // self._count)))

        def work_elsewhere(group: Sequence[Item]) -> list[Result]:
            process = self._idle.get()
            try:
                results: list[Result] = process.run(code, group)
            finally:
                self._idle.put(process)
            return results

        for results in in_threads(work_elsewhere, _groups(items, _ITEMS_AT_ONCE), self._count):
            yield from results

    @property
    def ids(self) -> list[int]:
        """Of the processes that were started."""
        return [process.id for process in self._started]

    def close(self) -> None:
        """End the processes, and what they are doing."""
        with self._lock:
            self._is_closed = True
            for process in self._started:
                process.end()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        with self._lock:
            if self._is_closed:
                raise ConflictError("the move was stopped")
            while len(self._started) < self._count:
                self._started.append(_Process())
                self._idle.put(self._started[-1])


class _Process:
    """A process that runs what it is sent, one group of items at a time."""

    def __init__(self) -> None:
        # The same modules as here, and not those of the present directory.
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from neve.move.workers import serve; "
            "serve(int(sys.argv[1]))"
        )
        # Results have a pipe for themselves, whatever a library prints.
        results, answers = os.pipe()
        self._results = os.fdopen(results, "rb")
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-c", program, str(answers)],
                stdin=subprocess.PIPE,
                stdout=_STANDARD_ERROR,
                pass_fds=[answers],
            )
        except BaseException:
            self._results.close()
            raise
        finally:
            os.close(answers)
        self._code = b""

    @property
    def id(self) -> int:
        return self._child.pid

    def run(self, code: bytes, group: Sequence[Any]) -> list[Any]:
        """Return the results of a group.

        Args:
            code: the pickled work; it is sent again only after other work.
        """
        try:
            _send(_pipe(self._child.stdin), (None if code is self._code else code, group))
            self._code = code
            outcome = pickle.load(self._results)  # noqa: S301 - our own process
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            raise StorageError(
                f"a process that reads and writes manifests has ended: {self.end()}",
                hint="run the command again",
            ) from error
        if isinstance(outcome, Exception):
            raise outcome
        results: list[Any] = outcome
        return results

    def end(self) -> int:
        """End the process; return its exit status."""
        self._child.kill()
        status = self._child.wait()
        for pipe in (_pipe(self._child.stdin), self._results):
            # What was not sent yet goes nowhere.
            with suppress(OSError):
                pipe.close()
        return status


@dataclass(frozen=True)
class _Group(Generic[Item, Result]):
    """Does the work for several items. Pickled."""

    work: Callable[[Item], Result]
    parallel: int = 1

    def __call__(self, items: Sequence[Item]) -> list[Result]:
        return list(in_threads(self.work, items, self.parallel))


def serve(descriptor: int) -> None:
    """Do what another process sends, until it ends; write the results to a descriptor."""
    # Ctrl-C reaches every process of a terminal; the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(descriptor, "wb")
    requests = sys.stdin.buffer
    work: Callable[[Any], Any] = len
    while True:
        try:
            code, group = pickle.load(requests)  # noqa: S301 - from the process that started us
        except EOFError:
            return
        try:
            work = pickle.loads(code) if code else work  # noqa: S301
            outcome = pickle.dumps(work(group))
        except Exception as error:  # noqa: BLE001 - raised where the work was asked for
            outcome = _pickled(error)
        try:
            answers.write(outcome)
            answers.flush()
        except BrokenPipeError:
            os._exit(1)


def _pickled(error: Exception) -> bytes:
    try:
        code = pickle.dumps(error)
        pickle.loads(code)  # noqa: S301 - some errors cannot be made anew
    except Exception:  # noqa: BLE001 - whatever an error's own pickling raises
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return code


def _send(pipe: IO[bytes], message: object) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("the process has no pipe")
    return pipe


def _groups(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), max(size, 1))]


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
