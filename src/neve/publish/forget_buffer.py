"""Remove what the tables remember of a buffer that is gone for good: `neve buffer forget ID`.

Only a person can know that a buffer never comes back. Were it still there, its next consolidation
would find no marks and store rows a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.buffer.layout import buffer_id_of
from neve.buffer.stream_states import StreamState, load_stream_states
from neve.errors import NotFoundError, UsageError
from neve.lake.catalog import list_tables
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.staged_snapshot import StagedSnapshot
from neve.lake.staging import Change, StagingTable, load_staging_table
from neve.publish.batch import STAGED_PREFIX
from neve.publish.ranges import (
    BATCH_ID,
    BATCH_RANGES,
    MARK_PREFIX,
    RANGES,
    decode_ranges,
    read_marks,
)
from neve.publish.rejected_rows import REJECTED_SUFFIX
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neve.buffer.store import BufferStore
    from neve.lake import Lake

# Streams of no buffer's name: they are older than buffers' ids, and not in the configured buffer.
UNNAMED = "unnamed"
FORGOT_BUFFER = "neve.forgot-buffer"


@dataclass(frozen=True)
class BufferMemory:
    """What one table remembers of one buffer."""

    table: str
    # Of `neve.mark.<stream>`, the streams.
    marks: tuple[str, ...] = ()
    # The batch's id by its ref.
    staged_batches: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.marks and not self.staged_batches


@dataclass(frozen=True)
class _Owners:
    """Which buffer a stream belongs to."""

    # Streams of the old naming that are in the configured buffer, or were dropped there.
    ours: frozenset[str]

    def owner(self, stream: str) -> str | None:
        """Return the id of a stream's buffer; None for the configured one, if it has no id."""
        if stream in self.ours:
            return None
        return buffer_id_of(stream) or UNNAMED

    def memory(self, table: StagingTable, buffer_id: str) -> BufferMemory:
        """Return what a table, as it was read last, remembers of a buffer."""
        marks = [s for s in read_marks(table.properties) if self.owner(s) == buffer_id]
        staged = {
            batch.ref: batch.summary.get(BATCH_ID, batch.ref)
            for batch in table.staged(STAGED_PREFIX)
            if buffer_id in map(self.owner, _streams_of_batch(batch))
        }
        return BufferMemory(table.name, tuple(sorted(marks)), staged)


def forget_buffer(
    lake: Lake,
    store: BufferStore,
    configured_id: str | None,
    buffer_id: str,
    *,
    discard_staged: bool = False,
) -> list[BufferMemory]:
    """Remove a buffer's marks and staged batches from every telemetry table; return what went.

    One commit for each table, which also moves `main`. Can be killed and repeated.

    Args:
        configured_id: the id of the configured buffer, which is refused.
        discard_staged: also remove staged batches, the last copy of acknowledged rows.

    Raises:
        UsageError: it is the configured buffer, or it has staged batches.
        NotFoundError: no table knows this buffer.
    """
    if buffer_id == configured_id:
        raise UsageError(
            f"{buffer_id} is the configured buffer",
            hint="forget only a buffer that is gone for good",
        )
    tables = _tables(lake)
    owners = _find_owners(store, tables)
    memories = [owners.memory(table, buffer_id) for table in tables]
    if all(memory.is_empty for memory in memories):
        raise NotFoundError(
            f"no table knows a buffer {buffer_id}",
            hint=_describe_known(tables, owners, configured_id),
        )
    if not discard_staged:
        _refuse_staged(memories)
    removed = [_forget(table, owners, buffer_id, discard_staged=discard_staged) for table in tables]
    return [memory for memory in removed if not memory.is_empty]


def _tables(lake: Lake) -> list[StagingTable]:
    lake.profile.require_catalog("forgetting a buffer")
    namespace = lake.profile.namespace(lake.settings.telemetry.namespace)
    try:
        names = list_tables(lake.profile, lake.catalog(), namespace)
    except NotFoundError:
        return []
    telemetry = {(*namespace, f"{name}{end}") for name in SCHEMAS for end in ("", REJECTED_SUFFIX)}
    return [
        load_staging_table(lake.profile, lake.catalog(), name)
        for name in names
        if name in telemetry
    ]


def _find_owners(store: BufferStore, tables: list[StagingTable]) -> _Owners:
    unnamed = {s for table in tables for s in _streams(table) if buffer_id_of(s) is None}
    states = load_stream_states(store, unnamed)
    return _Owners(frozenset(s for s in unnamed if states[s] is not StreamState.MISSING))


def _streams(table: StagingTable) -> set[str]:
    staged: list[StagedSnapshot] = table.staged(STAGED_PREFIX)
    return {
        *read_marks(table.properties),
        *(stream for batch in staged for stream in _streams_of_batch(batch)),
    }


def _streams_of_batch(batch: StagedSnapshot) -> set[str]:
    return {s for key in (RANGES, BATCH_RANGES) for s in decode_ranges(batch.summary, key)}


def _describe_known(tables: list[StagingTable], owners: _Owners, configured_id: str | None) -> str:
    ids = {owners.owner(stream) for table in tables for stream in _streams(table)} - {None}
    lines = []
    for buffer_id in sorted(map(str, ids)):
        memories = [owners.memory(table, buffer_id) for table in tables]
        known = [memory for memory in memories if not memory.is_empty]
        marks = sum(len(memory.marks) for memory in known)
        staged = sum(len(memory.staged_batches) for memory in known)
        configured = "the configured buffer, " if buffer_id == configured_id else ""
        counts = f"tables: {len(known)}, marks: {marks}, staged batches: {staged}"
        lines.append(f"{buffer_id} ({configured}{counts})")
    return f"known are: {', '.join(lines) or 'none'}"


def _refuse_staged(memories: list[BufferMemory]) -> None:
    staged = [(m.table, batch) for m in memories for batch in m.staged_batches.values()]
    if staged:
        table, batch = staged[0]
        raise UsageError(
            f"{len(staged)} staged batches of this buffer hold the last copy of acknowledged rows",
            hint=f"publish each first: neve staged publish {table} {batch}; "
            "--discard-staged gives them up",
        )


def _forget(
    table: StagingTable, owners: _Owners, buffer_id: str, *, discard_staged: bool
) -> BufferMemory:
    memory = BufferMemory(table.name)

    def attempt() -> BufferMemory:
        nonlocal memory
        memory = owners.memory(table, buffer_id)
        if not discard_staged:
            _refuse_staged([memory])
        if not memory.is_empty:
            table.apply(
                Change(
                    base_main=table.main_id,
                    remove_properties=tuple(f"{MARK_PREFIX}{s}" for s in memory.marks),
                    drop_refs=tuple(memory.staged_batches),
                    summary={FORGOT_BUFFER: buffer_id},
                )
            )
        return memory

    def find_applied() -> BufferMemory | None:
        return memory if owners.memory(table, buffer_id).is_empty else None

    return commit_until_known(
        table.refresh, attempt, find_applied, policy=RetryPolicy(), counters=CommitCounters()
    )
