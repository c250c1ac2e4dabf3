"""The state of a move in a file of lines, so that a move which was interrupted goes on.

One file for each table and target catalog. Lines are only appended; each is a JSON object with a
`kind`. The last line may be torn by a power cut: it is cut off. Losing lines is harmless, since
every step finds what it did before at the target; stages are synced all the same.
"""

from __future__ import annotations

import base64
import fcntl
import gzip
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from neve.errors import Code, ConflictError, StorageError
from neve.masking import mask_logins
from neve.move.files import WrittenFile
from neve.move.move_state import MoveHeader, MoveState, Stage, replay

if TYPE_CHECKING:
    from neve.lake.file_copy import Copied
    from neve.move.copy import CopyJob

_SUFFIX = ".jsonl"
# `read_journal` takes the lock for a moment.
_LOCK_ATTEMPTS = 5
_LOCK_WAIT_SECONDS = 0.02


def journal_path(directory: Path, target_catalog: str, table: str) -> Path:
    """Return the journal of a table's moves to a catalog; any name is a file name when quoted."""
    return directory / _file_name(target_catalog) / (_file_name(table) + _SUFFIX)


def _file_name(name: str) -> str:
    quoted = quote(name, safe=" ")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def list_journals(directory: Path) -> list[Path]:
    """Return every journal, in the order of catalogs and tables."""
    return sorted(directory.glob(f"*/*{_SUFFIX}"))


def read_journal(path: Path) -> MoveState | None:
    """Return the state of a move, also while another process moves; None: there is none.

    Raises:
        CorruptionError: a line other than the last cannot be read.
    """
    try:
        with path.open("rb") as file:
            state, _ = replay(file.read(), str(path), is_running=_is_locked(file.fileno()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    return state


class Journal:
    """The journal of a move in progress; only one process has it open.

    Raises:
        ConflictError: another process is moving this table.
        CorruptionError: a line other than the last cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            self._take_lock()
            with path.open("rb") as file:
                self.state, whole = replay(file.read(), str(path), is_running=True)
            os.ftruncate(self._file, whole)
        except BaseException:
            os.close(self._file)
            raise

    def _take_lock(self) -> None:
        for _ in range(_LOCK_ATTEMPTS):
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_WAIT_SECONDS)
        raise ConflictError(
            "another process is moving this table",
            hint=f"neve move status shows how far it is; its journal is {self._path}",
            code=Code.LOCKED,
        )

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, header: MoveHeader) -> None:
        """Begin a move. Files that were copied to the same location before stay known."""
        fields = asdict(header)
        document = base64.b64encode(gzip.compress(header.document, mtime=0)).decode()
        self._append("begun", {**fields, "document": document}, sync=True)

    def resume(self) -> None:
        """Note that a move goes on: its last error is over."""
        self._append("resumed", {}, sync=True)

    def copied(self, job: CopyJob, copied: Copied) -> None:
        """Note a file that is at the target: `done` of `copy_files`."""
        fields = {"target": job.target, "size": copied.size, "checksum": copied.checksum}
        self._append("copied", fields)

    def rewritten(self, source: str, written: WrittenFile) -> None:
        """Note what a manifest, manifest list or delete file became."""
        self._append("rewritten", {"source": source, "target": written.path, "size": written.size})

    def counted(self, counts: Mapping[str, int]) -> None:
        """Note numbers for `neve move status`; a later number of the same name counts."""
        self._append("counted", {"counts": dict(counts)})

    def reached(self, stage: Stage, **facts: str) -> None:
        """Note that a stage is complete, and what later stages need of it."""
        self._append("reached", {"stage": stage.value, "facts": facts}, sync=True)

    def failed(self, stage: Stage, message: str, *, is_damage: bool = False) -> None:
        """Note why a move stopped before a stage was complete.

        Args:
            is_damage: files at the target are not what they should be; the next run trusts none.
        """
        fields = {"stage": stage.value, "error": mask_logins(message), "is_damage": is_damage}
        self._append("failed", fields, sync=True)

    def _append(self, kind: str, fields: Mapping[str, Any], *, sync: bool = False) -> None:
        record = {"kind": kind, "at": datetime.now(timezone.utc).isoformat(), **fields}
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                self._write(line)
                if sync:
                    os.fsync(self._file)
            except OSError as error:
                raise _unusable(self._path, error) from error
            self.state = self.state.after(record)

    def _write(self, line: bytes) -> None:
        before, rest = os.fstat(self._file).st_size, memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # The next line would be glued to what a full disk left of this one.
            os.ftruncate(self._file, before)
            raise


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _unusable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"the journal {path} cannot be used: {error.strerror or error}",
        hint="check the directory, its permissions and its free space",
    )
