"""What changed between two versions of a table, told from all rows of both.

Every version is read whole, by PyIceberg as a rule, and rows are compared as values: nothing here
depends on files, manifests or deletes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

Row = tuple[Any, ...]
Changes = Counter[Row]
_ALONE = ("delete", "insert")
_UPDATED = ("update_preimage", "update_postimage")


class VersionOracle:
    """Keeps every version of a table in memory.

    Args:
        read: reads a snapshot's rows, where PyIceberg cannot.
    """

    def __init__(self, table: Table, read: Callable[[int], pa.Table] | None = None) -> None:
        self.metadata = table.metadata
        read = read or (lambda number: table.scan(snapshot_id=number).to_arrow())
        self._rows = {
            snapshot.snapshot_id: (
                self._snapshot_schema(snapshot.snapshot_id),
                read(snapshot.snapshot_id).to_pylist(),
            )
            for snapshot in self.metadata.snapshots
        }

    def line(self, snapshot_id: int | None) -> list[int]:
        """Return a snapshot and its ancestors, the newest first."""
        line = []
        while snapshot_id is not None:
            line.append(snapshot_id)
            snapshot = self.metadata.snapshot_by_id(snapshot_id)
            snapshot_id = snapshot.parent_snapshot_id if snapshot else None
        return line

    def version(self, snapshot_id: int | None, schema: Schema | None = None) -> Changes:
        """Return the rows of a version, in the columns of a schema; each with how often it is."""
        if snapshot_id is None:
            return Counter()
        own, rows = self._rows[snapshot_id]
        target = (schema or own).as_struct()
        return Counter(plain(_projected(row, own.as_struct(), target)) for row in rows)

    def end(self, until: int | str | None) -> tuple[int | None, Schema]:
        """Return the snapshot and the columns that the end of a range has."""
        ref = self.metadata.refs.get("main" if until is None else str(until))
        if ref is None:
            snapshot_id = until if isinstance(until, int) else None
        else:
            snapshot_id = ref.snapshot_id
        if snapshot_id is None or (ref and ref.snapshot_ref_type == "branch"):
            return snapshot_id, self.metadata.schema()
        return snapshot_id, self._snapshot_schema(snapshot_id)

    def changes(
        self, since: int | None, until: int | str | None, keys: Sequence[str] | None = None
    ) -> Changes:
        """Return what each commit after a version changed."""
        end_id, schema = self.end(until)
        line = self.line(end_id)
        commits = line[: line.index(since)] if since is not None else line
        found: Changes = Counter()
        for commit in commits:
            parent = self.metadata.snapshot_by_id(commit).parent_snapshot_id
            stamp = (commit, self._committed_at(commit, line))
            found += self._difference(parent, commit, schema, stamp, keys)
        return found

    def net(
        self, since: int | None, until: int | str | None, keys: Sequence[str] | None = None
    ) -> Changes:
        """Return what differs between two versions, each row with the commit that made it so.

        A row names the commit since which it is there, or is not; both rows of an update name the
        commit of the later one.
        """
        end_id, schema = self.end(until)
        line = self.line(end_id)
        ids = [*reversed(line[: line.index(since)] if since is not None else line)]
        versions = [self.version(each, schema) for each in (since, *ids)]
        stamps = [(each, self._committed_at(each, line)) for each in ids]
        deleted, inserted = versions[0] - versions[-1], versions[-1] - versions[0]
        updated = _updated_keys(schema, deleted, inserted, keys)
        places = _places(schema, keys)
        steps = {row: _crossings([rows[row] for rows in versions]) for row in (*deleted, *inserted)}
        last = defaultdict(int)
        for row, crossed in steps.items():
            last[_key(row, places)] = max(last[_key(row, places)], *crossed)
        found: Changes = Counter()
        for row, crossed in steps.items():
            is_updated = _key(row, places) in updated
            kind = (_UPDATED if is_updated else _ALONE)[row in inserted]
            for step in crossed:
                found[(*row, kind, *stamps[last[_key(row, places)] if is_updated else step])] += 1
        return found

    def operations(self, since: int | None, until: int | str | None) -> set[str]:
        line = self.line(self.end(until)[0])
        commits = line[: line.index(since)] if since is not None else line
        return {self.metadata.snapshot_by_id(each).summary.operation.value for each in commits}

    def _difference(
        self,
        before: int | None,
        after: int,
        schema: Schema,
        stamp: tuple[int, datetime],
        keys: Sequence[str] | None,
    ) -> Changes:
        old, new = self.version(before, schema), self.version(after, schema)
        deleted, inserted = old - new, new - old
        updated = _updated_keys(schema, deleted, inserted, keys)
        places = _places(schema, keys)
        found: Changes = Counter()
        for rows, alone, paired in (
            (deleted, "delete", "update_preimage"),
            (inserted, "insert", "update_postimage"),
        ):
            for row, count in rows.items():
                kind = paired if _key(row, places) in updated else alone
                found[(*row, kind, *stamp)] += count
        return found

    def _committed_at(self, snapshot_id: int, line: Sequence[int]) -> datetime:
        """Return when a reader first saw a snapshot: by the history, or with one that follows."""
        first: dict[int, int] = {}
        for entry in self.metadata.snapshot_log:
            first.setdefault(entry.snapshot_id, entry.timestamp_ms)
        for each in reversed(line[: line.index(snapshot_id) + 1]):
            if each in first:
                return _moment(first[each])
        return _moment(self.metadata.snapshot_by_id(snapshot_id).timestamp_ms)

    def _snapshot_schema(self, snapshot_id: int) -> Schema:
        schema_id = self.metadata.snapshot_by_id(snapshot_id).schema_id
        return next(each for each in self.metadata.schemas if each.schema_id == schema_id)


def read_rows(rows: Sequence[dict[str, Any]]) -> Changes:
    """Count the rows of an answer as the oracle counts its own."""
    return Counter(tuple(plain(value) for value in row.values()) for row in rows)


def plain(value: Any) -> Any:
    """Make a value that is equal only if all of it is: NaN to NaN, and 0.0 not to -0.0."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return tuple(plain(each) for each in value.values())
    if isinstance(value, list):
        each = [plain(one) for one in value]
        is_map = bool(value) and all(isinstance(one, tuple) for one in value)
        return tuple(sorted(each, key=repr) if is_map else each)
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    return value


def _projected(value: Any, own: IcebergType, target: IcebergType) -> Any:
    """Read a value of one type as another: fields by their ids, NULL for those that came later."""
    if value is None:
        return None
    if isinstance(target, StructType) and isinstance(own, StructType):
        fields = {field.field_id: field for field in own.fields}
        return tuple(
            _projected(value[known.name], known.field_type, field.field_type)
            if (known := fields.get(field.field_id))
            else None
            for field in target.fields
        )
    if isinstance(target, ListType) and isinstance(own, ListType):
        return [_projected(each, own.element_type, target.element_type) for each in value]
    if isinstance(target, MapType) and isinstance(own, MapType):
        return [(key, _projected(each, own.value_type, target.value_type)) for key, each in value]
    return value


def _crossings(counts: Sequence[int]) -> list[int]:
    """Return, for each copy of a row that one end has more, the step since which that is so."""
    first, last = counts[0], counts[-1]
    return [
        max(
            step
            for step, (before, after) in enumerate(pairwise(counts))
            if (before < level <= after if first < last else after < level <= before)
        )
        for level in range(min(first, last) + 1, max(first, last) + 1)
    ]


def _updated_keys(
    schema: Schema, deleted: Changes, inserted: Changes, keys: Sequence[str] | None
) -> set[Row]:
    """Return the keys of which one row was deleted and one inserted."""
    places = _places(schema, keys)
    if not places:
        return set()
    return set.intersection(
        *(
            {key for key, count in _by_key(rows, places).items() if count == 1}
            for rows in (deleted, inserted)
        )
    )


def _by_key(rows: Changes, places: Sequence[int]) -> dict[Row, int]:
    counts: dict[Row, int] = defaultdict(int)
    for row, count in rows.items():
        counts[_key(row, places)] += count
    return counts


def _places(schema: Schema, keys: Sequence[str] | None) -> list[int]:
    names = [field.name for field in schema.fields]
    return [names.index(name) for name in keys or ()]


def _key(row: Row, places: Sequence[int]) -> Row:
    return tuple(row[place] for place in places)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds // 1000, timezone.utc).replace(
        microsecond=milliseconds % 1000 * 1000
    )


def differences(found: Changes, wanted: Changes) -> Iterator[str]:
    """Say in words what an answer has too much and too little."""
    for word, rows in (("unexpected", found - wanted), ("missing", wanted - found)):
        for row, count in sorted(rows.items(), key=repr):
            yield f"{word} {count}x {row}"
