"""Keep a table by the changes of another one, exactly once.

The position is in the commit of the table that is kept (`target_table.py`), so that a batch is
there with its position or not at all, and of two processes only one can win. The tag at the
followed table moves after that. It is only for people to see, and for expiry.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import NotFoundError, UnsupportedError, UsageError
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.follower_tags import FollowerTag, follower_tag
from neve.lake.java_tables import MAIN, isolated
from neve.versions import target_rows as tr
from neve.versions.change_columns import keys_of
from neve.versions.followed_table import CommitRange, SourceTable
from neve.versions.renamed_columns import NameReusedError, changed_inside, renamed_columns
from neve.versions.target_position import Position
from neve.versions.target_table import TargetTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef
    from neve.versions.follow import Transform

logger = logging.getLogger(__name__)

CHANGES_VIEW = "changes"

_TAG_ATTEMPTS = 5


@dataclass(frozen=True)
class TargetSpec:
    """The table that is kept, and how rows get into it."""

    ref: TableRef
    keys: tuple[str, ...] | None = None
    transform: Transform | None = None
    add: tuple[str, ...] = ()
    count: str | None = None

    def __post_init__(self) -> None:
        if self.add and (self.transform is None or not self.keys):
            raise UsageError("add needs keys, and a transform that returns what is to be added")
        if self.count is not None and self.count not in self.add:
            raise UsageError(f"count is one of the columns to add, and {self.count} is not")


@dataclass(frozen=True)
class TargetReport:
    """What `to_table` has done.

    Args:
        commits: how many commits of the followed table were read.
        rows: how many rows were merged or appended.
        until: the snapshot of the followed table up to which the other one has its changes.
    """

    table: str
    target: str
    batches: int = 0
    commits: int = 0
    rows: int = 0
    until: int | None = None


def keep_table(source: SourceTable, spec: TargetSpec) -> TargetReport:
    """Bring a table up to date with the one that is followed; with `wait`, until it is stopped."""
    if spec.ref == source.spec.ref:
        raise UsageError(f"{spec.ref.name} cannot follow itself", hint="name another table")
    # A MERGE takes one change of each key.
    mode = "net" if source.spec.mode == "changes" else source.spec.mode
    source = SourceTable(
        source.lake, replace(source.spec, mode=mode), source.stop, kept=spec.ref.name
    )
    with isolated(source.lake, {}) as session:
        return _Keeper(source, spec, session).run()


class _Keeper:
    """Keeps one table, batch after batch."""

    def __init__(self, source: SourceTable, spec: TargetSpec, session: SparkSession) -> None:
        self.source = source
        self.spec = spec
        self.session = session
        self.lake = source.lake.in_session(session)
        self.target = TargetTable(self.lake, session, spec.ref, source.stop)
        self.report = TargetReport(source.name, spec.ref.name)

    def run(self) -> TargetReport:
        source = self.source
        while not source.is_stopped:
            metadata = source.read()
            self.target.refresh()
            position = self._position(metadata)
            start = source.beginning(metadata) if position is None else position.snapshot_id
            is_done = True
            for commits in source.ranges(metadata, start):
                position = self._take(metadata, commits, position)
                is_done = position is not None
                if source.is_stopped or not is_done:
                    break
            if is_done and (source.branch(metadata) is None or not source.wait()):
                break
        return self.report

    def _take(
        self, metadata: MetadataJson, commits: CommitRange, before: Position | None
    ) -> Position | None:
        """Write the changes of some commits; None: another process has moved the position."""
        batch = _Batch(self, metadata, commits, before)
        is_written = commit_until_known(
            self.target.refresh,
            batch.attempt,
            lambda: True if batch.is_applied() else None,
            policy=RetryPolicy(),
            counters=CommitCounters(),
            stop=self.source.stop,
        )
        if not is_written:
            return None
        failpoints.reach("follow.published")
        self._move_tag(metadata, commits.until)
        self.report = replace(
            self.report,
            batches=self.report.batches + 1,
            commits=self.report.commits + len(commits.commits),
            rows=self.report.rows + batch.rows,
            until=commits.until,
        )
        return batch.position

    def _position(self, metadata: MetadataJson) -> Position | None:
        """Return where the table is, and move the tag there. Refuses what does not fit."""
        name, target, follower = self.source.name, self.target.name, self.source.spec.name
        tag = follower_tag(metadata, follower)
        if tag is not None and tag.target != target:
            uses = f"keeps table {tag.target}" if tag.target else "is a consumer without a table"
            raise UsageError(
                f"{name}: follower {follower} {uses}",
                hint=f"choose another name, or drop it: neve follow drop {name} {follower}",
            )
        if self.target.metadata is not None and self.target.metadata.uuid == metadata.uuid:
            raise UsageError(f"{target} cannot follow itself", hint="name another table")
        position = self.target.position(follower)
        if position is None:
            if tag is not None:
                raise self._lost_position(tag)
            return None
        if position.table_uuid != metadata.uuid:
            raise NotFoundError(
                f"{target}: follower {follower} kept it from a table that {name} is not: that was "
                "dropped and created again, or is another one",
                hint=f"drop {target} to fill it from the beginning, or choose another name",
            )
        self.report = replace(self.report, until=position.snapshot_id)
        if tag is None or tag.snapshot_id != position.snapshot_id:
            self._move_tag(metadata, position.snapshot_id)
        return position

    def _lost_position(self, tag: FollowerTag) -> NotFoundError:
        name, target = self.source.name, self.target.name
        state = "does not exist" if self.target.metadata is None else "does not say so"
        return NotFoundError(
            f"{name}: follower {tag.name} kept {target} up to snapshot {tag.snapshot_id}, but "
            f"{target} {state}: it was dropped or rolled back",
            hint=f"to fill it from the beginning, run: neve follow drop {name} {tag.name}",
        )

    def _move_tag(self, metadata: MetadataJson, snapshot_id: int) -> None:
        """Move the tag to the table's position, from wherever it is."""
        if snapshot_id not in metadata.snapshots:
            # Expired: what follows says so.
            return
        source = self.source
        described = {"branch": source.branch(metadata) or MAIN, "target": self.target.name}
        for _ in range(_TAG_ATTEMPTS):
            tag = follower_tag(source.read(), source.spec.name)
            tag_id = None if tag is None else tag.snapshot_id
            if source.move(tag_id, snapshot_id, uuid.uuid4().hex, described):
                return
        logger.warning(
            "%s: the tag of follower %s is left to another process", source.name, source.spec.name
        )


class _Batch:
    """The changes of some commits on their way into the table."""

    def __init__(
        self,
        keeper: _Keeper,
        metadata: MetadataJson,
        commits: CommitRange,
        before: Position | None,
    ) -> None:
        self._keeper = keeper
        self._metadata = metadata
        self._commits = commits
        self._before = before
        self.position = Position(
            keeper.source.spec.name,
            metadata.uuid,
            commits.until,
            _schema_id(metadata, commits.until),
            uuid.uuid4().hex,
        )
        self.rows = 0

    def is_applied(self) -> bool:
        return self._is_at(self.position)

    def _is_at(self, position: Position | None) -> bool:
        present = self._keeper.target.position(self.position.follower)
        if present is None or position is None:
            return present is position
        return present.batch_id == position.batch_id

    def attempt(self) -> bool:
        """Write the batch and publish it; False: another process has moved the position."""
        if not self._is_at(self._before):
            return False
        self._write()
        return True

    def _write(self) -> None:
        keeper, target = self._keeper, self._keeper.target
        with keeper.lake.explaining():
            # Only a transform sees the columns that name commits.
            is_seen = keeper.spec.transform is not None
            rows = keeper.source.rows(keeper.lake, self._commits, names_commits=is_seen)
            rows = self._shaped(rows)
            fields = tr.data_fields(rows)
        keys = self._keys([field.name for field in fields])
        target.prepare(fields, self._metadata.format_version, self._renamed())
        failpoints.reach("follow.prepared")
        marked = tr.marked(rows)
        if not keys:
            target.publish(self.position, lambda name: self._append(marked, name))
            return
        marked = marked.persist()
        try:
            with keeper.lake.explaining():
                self._count(marked, keys)
            target.publish(self.position, lambda name: self._merge(marked, keys, name))
        finally:
            marked.unpersist()

    def _shaped(self, changes: DataFrame) -> DataFrame:
        transform = self._keeper.spec.transform
        if transform is None:
            return changes
        if isinstance(transform, str):
            changes.createOrReplaceTempView(CHANGES_VIEW)
            return self._keeper.lake.sql(transform)
        return transform(changes)

    def _keys(self, columns: list[str]) -> tuple[str, ...]:
        """Return the columns that rows are merged by; none: rows are appended."""
        keeper = self._keeper
        keys = keeper.spec.keys
        if keys is None and keeper.source.spec.mode == "appends":
            return ()
        if keys is None:
            keys = tuple(keys_of(self._metadata, self.position.schema_id))
        spelled = {name.lower(): name for name in columns}
        missing = [name for name in (*keys, *keeper.spec.add) if name.lower() not in spelled]
        if missing or not keys:
            raise UsageError(
                f"{keeper.source.name} → {keeper.target.name}: "
                + (f"the rows have no column {missing[0]}" if missing else "keys are not known"),
                hint="name the key columns: to_table(…, keys=[…]); rows have: "
                + ", ".join(columns),
            )
        return tuple(spelled[name.lower()] for name in keys)

    def _count(self, rows: DataFrame, keys: tuple[str, ...]) -> None:
        (counted,) = tr.count_rows(rows, keys).collect()
        self.rows = int(counted["rows"] or 0)
        if (counted["most"] or 0) > 1:
            raise UsageError(
                f"{self._keeper.source.name}: the keys {', '.join(keys)} are not unique: a key is "
                f"written {counted['most']} times in the batch up to {self._commits.until}",
                hint="name keys that identify a row, or a transform that returns each key once",
            )

    def _append(self, rows: DataFrame, name: str) -> bool:
        tr.written_rows(rows, self._keeper.target.schema).writeTo(name).append()
        return True

    def _merge(self, rows: DataFrame, keys: tuple[str, ...], name: str) -> bool:
        """Merge rows into a branch; False: there are none."""
        keeper = self._keeper
        if not self.rows:
            return False
        if keeper.target.is_empty and not keeper.spec.count:
            return self._append(rows, name)
        given = {field.name.lower() for field in tr.data_fields(rows)}
        names = tuple(keeper.target.schema.names)
        columns = tr.MergeColumns(
            names,
            tuple(each for each in names if each.lower() in given),
            keys,
            keeper.spec.add,
            keeper.spec.count,
        )
        tr.one_for_each_key(rows, keys).createOrReplaceTempView(tr.SOURCE)
        keeper.session.sql(tr.merge_statement(name, columns))
        return True

    def _renamed(self) -> dict[str, str]:
        """Return the columns that got another name since the position."""
        if self._before is None or self._keeper.spec.transform is not None:
            return {}
        schemas = {each.get("schema-id", 0): each for each in self._metadata.schemas}
        old = schemas.get(self._before.schema_id, {"fields": ()})
        new = schemas.get(self.position.schema_id, {"fields": ()})
        source, target = self._keeper.source, self._keeper.target
        if name := changed_inside(old["fields"], new["fields"]):
            raise UnsupportedError(
                f"{source.name}: fields inside column {name} were renamed or dropped after "
                f"snapshot {self._before.snapshot_id}, and rows of {target.name} have the old ones",
                hint=source.refill_hint,
            )
        try:
            return renamed_columns(old["fields"], new["fields"])
        except NameReusedError as error:
            raise UnsupportedError(
                f"{source.name}: column {error.name} is another one than at snapshot "
                f"{self._before.snapshot_id}, and rows of {target.name} have the old one under "
                "that name",
                hint=source.refill_hint,
            ) from error


def _schema_id(metadata: MetadataJson, snapshot_id: int) -> int:
    schema_id = metadata.snapshots[snapshot_id].get("schema-id")
    return metadata.current_schema_id if schema_id is None else int(schema_id)
