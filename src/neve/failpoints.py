"""Named points at which a process can be made to die, as a power cut would end it.

`NEVE_FAILPOINT=name` ends the process at the first pass, `name@3` at the third. Tests in a warm
process use `armed` instead, which raises `PowerCut` at the same place.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from neve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENVIRONMENT_VARIABLE = "NEVE_FAILPOINT"

# One table, so that listing the names imports no feature; a test keeps it equal to the code.
POINTS = MappingProxyType(
    {
        "receive.checked": "a request is read and checked, but not yet in the buffer",
        "receive.durable": "a request is durable, but its sender has no answer yet",
        "buffer.named": "a new stream's directory is locked, but not yet under its name",
        "buffer.created": "a new segment file is there, with nothing in it",
        "buffer.torn": "a group of requests is half written",
        "buffer.written": "a group of requests is written, but not synced",
        "buffer.synced": "a group of requests is durable, but not yet acknowledged",
        "buffer.renamed": "a segment has its sealed name, but its directory is not synced",
        "buffer.sealed": "a segment is sealed, and the next one not begun",
        "buffer.closed": "a stream has its closing segment, but still its lock file",
        "buffer.recovered": "a dead receiver's segment is cut and synced, but not yet sealed",
        "buffer.put_begun": "a group of requests is about to be put into an object store",
        "buffer.put_done": "a group of requests was put, but its receiver does not know yet",
        "buffer.settled": "a put in doubt was settled, but its receiver does not know yet",
        "buffer.retire_declared": "segments are declared as retired, and all still there",
        "buffer.retire_removed": "retired segments are removed, older declarations are still there",
        "buffer.drop_noted": "a stream is noted as dropped, and its files are still there",
        "replay.intended": "a replay of dead letters is announced, and nothing of it is stored",
        "replay.put": "replayed requests are stored, and their stream is not closed",
        "replay.closed": "a replay's stream is closed, and the dead letters are still there",
        "replay.removed": "replayed dead letters are removed, and the announcement is still there",
        "init.written": "neve init: the file is written under a temporary name, not yet in place",
        "consolidate.written": "a task has written its files, and nobody knows of them yet",
        "consolidate.decoded": "all files of a batch are written, and none is staged",
        "consolidate.published": "every table has a batch, and its segments are still there",
        "consolidate.retired": "a batch's segments are retired, and nobody was told",
        "compact.written": "the new files of a compaction are written, and not committed",
        "compact.committed": "new files have replaced old ones, and the next group is not begun",
        "publish.staged": "a batch is staged under its tag, and not yet audited",
        "publish.ready": "a batch is about to be published: the next step is the swap",
        "publish.published": "a batch is on main with its marks, and nobody was told",
        "publish.held": "a blocked batch is on its branch with the marks past it",
        "publish.rejected_staged": "the rows an audit sets aside are staged, their batch unchanged",
        "publish.clean_staged": "a batch's clean rows are staged in its place, and name the others",
        "publish.rejected_ready": "the clean rows are on main, those set aside about to be shown",
        "publish.rejected_published": "rows set aside are shown, the main table still names them",
        "publish.release_ready": "a held batch is about to be published: the next step is the swap",
        "publish.released": "a held batch is on main, and nobody was told",
        "merge.prepared": "a mirror is made or has its new columns, and no row of the batch",
        "merge.tombstones_written": "a batch's tombstones are written, and no commit names them",
        "merge.rejected": "a batch's rejected rows are written, and no commit names them",
        "merge.applied": "a batch is on a branch of the mirror, and not on main",
        "index.compacted": "an index was merged after a commit, and no commit names it",
        "merge.published": "a batch is in the mirror with its checkpoint, and nobody was told",
        "follow.prepared": "the table a follower keeps is made or has new columns, and no row yet",
        "follow.applied": "a follower's batch is on a branch of its table, and not on main",
        "follow.published": "a follower's batch is in its table, and its tag not yet moved",
        "move.planned": "a move is in its journal, and no file is at the target",
        "move.file_copied": "a file is at the target, and the journal does not say so yet",
        "move.copied": "all files of a table are copied, and none is rewritten",
        "move.rewritten": "a table's metadata is at the target, and not yet verified",
        "move.verified": "a moved table is proven to be whole, and not yet registered",
        "move.registered": "a moved table is registered, and its journal does not say so yet",
        "direct.written": "a direct write's data files are written, and no commit names them",
        "direct.committed": "a direct write is in its table, and its sender has no answer yet",
        "direct.unconfirmed": "a direct commit was not confirmed, and there is no recovery record",
        "direct.recorded": "a recovery record is durable, and its sender has no answer yet",
        "recover.registered": "a record's files are in their table, and the record is still there",
        "recover.table_registered": "a lost table is registered, and its index not yet rebuilt",
        "upkeep.expired": "snapshots are expired, and the files that only they had still there",
        "upkeep.rows_deleted": "rows past their age are deleted, and nobody was told",
        "upkeep.orphans_deleted": "some orphans of a table are deleted, and others still there",
        "lake.file_written": "a local file is complete under a temporary name, not yet in place",
        "lake.part_written": "a part of a large file is written, and the file is not there yet",
        "lake.jar_fetched": "a jar was downloaded and checked, but is not yet in the cache",
    }
)


class PowerCut(BaseException):
    """Raised at an armed point inside tests; a BaseException, so that no handler survives it."""


class _Armed:
    def __init__(self, name: str, passes: int, cut: Callable[[], NoReturn]) -> None:
        self.name = name
        self.left = passes
        self.cut = cut

    def reach(self, name: str) -> None:
        if name != self.name:
            return
        self.left -= 1
        if self.left == 0:
            self.cut()


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("unreachable: SIGKILL cannot be survived")


def _raise() -> NoReturn:
    raise PowerCut


def _from_environment() -> _Armed | None:
    text = os.environ.get(ENVIRONMENT_VARIABLE)
    if not text:
        return None
    name, _, passes = text.partition("@")
    return _Armed(name, int(passes) if passes.isdigit() else 1, _kill)


_armed = _from_environment()


def reach(name: str) -> None:
    """Die here if `name` is armed; otherwise cost one comparison."""
    if _armed is not None:
        _armed.reach(name)


def check_environment() -> None:
    """Refuse a `NEVE_FAILPOINT` that could never be reached."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "")
    name, at, passes = text.partition("@")
    if text and (name not in POINTS or (at and not (passes.isdigit() and int(passes) > 0))):
        raise ConfigError(
            f"{ENVIRONMENT_VARIABLE}={text} names no failpoint",
            hint="run: neve debug failpoints; use name, or name@3 for the third pass",
        )


@contextmanager
def armed(name: str, passes: int = 1) -> Iterator[None]:
    """Raise `PowerCut` at the given pass of a point, inside this process only."""
    global _armed
    if name not in POINTS:
        raise KeyError(name)
    before, _armed = _armed, _Armed(name, passes, _raise)
    try:
        yield
    finally:
        _armed = before
