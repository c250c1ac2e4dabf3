"""The interface to where segments are stored: a local directory or an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from neve.errors import NeveError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from neve.buffer.frame import ReadRange
    from neve.buffer.layout import StoredFile
    from neve.buffer.payload import Request


class LostStreamError(NeveError):
    """The stream may not be written any more; what was to be committed is not in it."""

    default_code = StorageError.default_code


class Log(Protocol):
    """A stream being written, by one thread of one process.

    After a failed `commit` nothing but `settle` may be called until that has returned.
    """

    @property
    def stream(self) -> str:
        """The stream's name."""

    @property
    def open_bytes(self) -> int:
        """The size of the segment not yet sealed; 0 when there is none."""

    @property
    def fsync_seconds(self) -> float:
        """How long the latest commit waited for the disk's fsync, or for the store's put."""

    def commit(self, requests: Sequence[Request]) -> None:
        """Append a group. Durable on return.

        Raises:
            LostStreamError: the group is not stored, and this stream has ended.
            StorageError: whether the group is stored is unknown until `settle` returns.
        """

    def settle(self) -> bool:
        """Decide the group of a failed commit, and return whether it is stored.

        Raises:
            LostStreamError: it is not, and this stream has ended.
            StorageError: still unknown; to be called again.
        """

    def seal(self) -> None:
        """Let readers see what was committed. Idempotent; raises StorageError, to be retried."""

    def close(self) -> None:
        """Seal, and end the stream with a closing segment. Raises StorageError."""

    def abandon(self) -> None:
        """Release the stream as a crash would; `end_stream` or `close_abandoned` ends it later.

        Idempotent.
        """


class Lease(Protocol):
    """Keeps workers from doing the same work twice.

    Correctness must not depend on it: clocks differ, answers get lost, and a worker may sleep
    longer than its lease lasts, so two workers may hold it at once.
    """

    def hold(self, listed: Sequence[StoredFile] | None = None) -> bool:
        """Take it, or keep it for as long again; False while another holds it.

        Args:
            listed: what a listing of its signal has just shown, if there was one.

        Raises:
            StorageError: whether it is held is unknown.
        """

    def release(self) -> None:
        """Release it, if it is still held. Idempotent; raises StorageError."""


class BufferStore(Protocol):
    """Where streams are kept. Paths are those of `layout`, relative to the buffer's location."""

    def begin(self, signal: str) -> Log:
        """Start a stream that no other receiver can ever write; its name carries the buffer's id.

        Raises:
            StorageError: the location cannot be written.
            CorruptionError: the buffer's identity is damaged.
        """

    def files(self, prefix: str) -> list[StoredFile]:
        """Return the files whose path begins with `prefix` (whole path segments), sorted."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a file, fewer at its end. Raises NotFoundError, StorageError."""

    def open_file(self, path: str) -> AbstractContextManager[ReadRange]:
        """Open a file for several reads of ranges. Raises as `read` does."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Write a whole file, durable on return, unless it exists already; say whether it was.

        Atomic: other processes see all of it or nothing.
        """

    def move(self, targets: Mapping[str, str]) -> None:
        """Move files, each to its target, and set their time to now; durable on return.

        A file that was already moved is no error.
        """

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files, in any order; one that was already removed is no error."""

    def remove_stream(self, stream: str) -> None:
        """Remove what is left of a stream that has no parts any more."""

    def free_bytes(self) -> int | None:
        """Return how much room is left; None where there is no such limit."""

    def close_abandoned(self) -> list[str]:
        """End the streams whose receiver is gone, and name them. Safe to run anywhere, anytime."""

    def end_stream(self, stream: str) -> None:
        """End a stream that this process has abandoned. Idempotent.

        On return no put or write in doubt can add to it. Raises StorageError, to be retried.
        """

    def lease(self, name: str, seconds: float) -> Lease:
        """Return a lease, not yet held; others may take it if it is not kept for `seconds`."""
