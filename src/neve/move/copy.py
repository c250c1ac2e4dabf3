"""Copy the files of a table: many at once, each once, each compared by its checksum."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from neve import failpoints
from neve.errors import NotFoundError
from neve.lake.file_copy import Copied
from neve.lake.file_store import FileStore
from neve.move.rate_limit import RateLimit


@dataclass(frozen=True)
class CopyJob:
    """A file to copy.

    Args:
        size: as the table's metadata records it; None: it records none.
    """

    source: str
    target: str
    size: int | None


@dataclass(frozen=True)
class CopyCounts:
    """What a call of `copy_files` did.

    Args:
        files, bytes: of what is at the target now.
        existing_files, existing_bytes: of what was there before.
    """

    files: int = 0
    bytes: int = 0
    existing_files: int = 0
    existing_bytes: int = 0


class _StoppedError(Exception):
    """Ends the copies in progress after another has failed."""


def copy_files(
    jobs: Iterable[CopyJob],
    source: FileStore,
    target: FileStore,
    *,
    done: Callable[[CopyJob, Copied], None],
    already: Mapping[str, str],
    files_at_once: int,
    limit: RateLimit,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> CopyCounts:
    """Copy files until all are at the target, or one fails.

    Resumable: a file in `already` that the target has with its length is not read again; any other
    file that is there with the same bytes is accepted. Nothing is overwritten. Memory is bounded,
    however many and however large the files: one part for each file at once, and a few more.

    Args:
        done: is told each file once it is durable; never twice at the same time.
        already: target paths and checksums that `done` was told before.
        on_bytes: is told bytes as they go, files that need no copy included.

    Raises:
        NotFoundError: a source file vanished.
        CorruptionError: a file has another length than the metadata says, or was damaged.
        ConflictError: the target has another file of the name.
    """
    work = _Copying(iter(jobs), source, target, done, already, limit, on_bytes)
    with ThreadPoolExecutor(files_at_once, "copies") as pool:
        workers = [pool.submit(work.run) for _ in range(files_at_once)]
        try:
            for worker in workers:
                worker.result()
        finally:
            work.stop.set()
    if work.failure is not None:
        raise work.failure
    return CopyCounts(work.files, work.bytes, work.existing_files, work.existing_bytes)


class _Copying:
    """The state that the workers of one call share."""

    def __init__(
        self,
        jobs: Iterator[CopyJob],
        source: FileStore,
        target: FileStore,
        done: Callable[[CopyJob, Copied], None],
        already: Mapping[str, str],
        limit: RateLimit,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._jobs, self._source, self._target = jobs, source, target
        self._done, self._already, self._limit, self._on_bytes = done, already, limit, on_bytes
        self._lock = threading.Lock()
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.files = self.bytes = self.existing_files = self.existing_bytes = 0

    def run(self) -> None:
        """Copy file after file; the first failure of any worker ends all."""
        try:
            while (job := self._next()) is not None:
                self._finish(job, self._copy(job))
        except _StoppedError:
            return
        except BaseException as failure:  # noqa: BLE001 - raised again by copy_files
            with self._lock:
                self.failure = self.failure or failure
            self.stop.set()

    def _next(self) -> CopyJob | None:
        with self._lock:
            return None if self.stop.is_set() else next(self._jobs, None)

    def _copy(self, job: CopyJob) -> Copied:
        checksum = self._already.get(job.target)
        if checksum is not None:
            size = self._target.size(job.target)
            if size is not None and size == (size if job.size is None else job.size):
                self._tell(size)
                return Copied(size, checksum, existed=True)
        told = 0

        def on_part(size: int) -> None:
            nonlocal told
            self._limit.take(size, self.stop)
            if self.stop.is_set():
                raise _StoppedError
            told += size
            self._tell(size)

        try:
            copied = self._target.copy_in(
                self._source, job.source, job.target, size=job.size, on_bytes=on_part
            )
        except NotFoundError as error:
            raise NotFoundError(
                f"{job.source} was deleted while the table was moved",
                hint="the source has expired snapshots; run the command again: it plans the "
                "present version and copies only what is missing",
            ) from error
        self._tell(copied.size - told)
        failpoints.reach("move.file_copied")
        return copied

    def _tell(self, size: int) -> None:
        with self._lock:
            self._on_bytes(size)

    def _finish(self, job: CopyJob, copied: Copied) -> None:
        with self._lock:
            self.files += 1
            self.bytes += copied.size
            if copied.existed:
                self.existing_files += 1
                self.existing_bytes += copied.size
            if job.target not in self._already:
                self._done(job, copied)
