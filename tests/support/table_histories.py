"""Tables with a random past: rows, files, columns, partitions and refs that change in any order."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neve.lake import Lake

_MODES = ("delete", "update", "merge")
# Literals of each type. Few, so that equal rows come often, and NULL, NaN and -0.0.
_VALUES = {
    "INT": ("NULL", *map(str, range(8))),
    "BIGINT": ("NULL", *map(str, range(8))),
    "PART": ("NULL", "'a'", "'b'"),
    "STRING": ("NULL", "''", "'x'", "'y'", "'é𝄞'"),
    "FLOAT": ("NULL", "float('NaN')", "float('-0.0')", "float('0.0')", "float('1.5')"),
    "DOUBLE": ("NULL", "double('NaN')", "double('-0.0')", "double('0.0')", "double('1.5')"),
    "DECIMAL(9,2)": ("NULL", "0.00BD", "-1.50BD", "1234567.89BD"),
    "DECIMAL(18,2)": ("NULL", "0.00BD", "-1.50BD", "1234567.89BD"),
    "BINARY": ("NULL", "X''", "X'00'", "X'00ff'"),
    "STRUCT": ("NULL", "named_struct('a', 1, 'b', 'x')", "named_struct('a', NULL, 'b', NULL)"),
    "ARRAY": ("NULL", "array()", "array(1, NULL)", "array(1, 2)"),
    "MAP": ("NULL", "map()", "map('k', 1)", "map('k', NULL, 'j', 2)"),
}
_TYPES = {
    "PART": "STRING",
    "STRUCT": "STRUCT<a: INT, b: STRING>",
    "ARRAY": "ARRAY<INT>",
    "MAP": "MAP<STRING, INT>",
}
_COLUMNS = {
    "id": "INT",
    "part": "PART",
    "word": "STRING",
    "ratio": "FLOAT",
    "price": "DECIMAL(9,2)",
    "raw": "BINARY",
    "pair": "STRUCT",
    "list": "ARRAY",
    "dict": "MAP",
}
_WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE", "DECIMAL(9,2)": "DECIMAL(18,2)"}
_PARTITIONS = ("part", "bucket(2, id)", "truncate(1, part)")


class TableHistory:
    """One table in a namespace of its own, changed step by step; `statements` can be run again."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.seed = seed
        self.chance = random.Random(seed)
        self.statements: list[str] = []
        self.namespace = f"t_{uuid.uuid4().hex[:12]}"
        self.name = f"{self.namespace}.t"
        self.columns = dict(_COLUMNS)
        self.numbers = itertools.count()
        self.format_version = self.first_format_version = self.chance.choice((1, 2, 2, 3))
        self.partitions = self.chance.sample(_PARTITIONS, self.chance.choice((0, 1)))
        self.has_one_spec = True
        # Iceberg cannot read a table to which one of these is added again in a later version.
        self.dropped_in_version_1: set[str] = set()
        self.branch: str | None = None
        self._create()

    def _create(self) -> None:
        columns = ", ".join(f"{name} {_sql_type(kind)}" for name, kind in self.columns.items())
        partitioned = f"PARTITIONED BY ({self.partitions[0]})" if self.partitions else ""
        self.run(f"CREATE NAMESPACE {self.namespace}")
        self.run(
            f"CREATE TABLE {self.name} ({columns}) USING iceberg {partitioned} TBLPROPERTIES "
            f"('format-version'='{self.format_version}', 'write.distribution-mode'='none', "
            "'write.spark.fanout.enabled'='true', "
            "'write.wap.enabled'='true')"
        )
        self.change_write_modes()

    def live(self, steps: int) -> None:
        """Take random steps; rows change in most of them."""
        self.append()
        rows = (self.append, self.append_again, self.delete, self.delete, self.update, self.merge)
        others = (
            self.overwrite,
            self.overwrite_partitions,
            self.compact,
            self.compact_deletes,
            self.rewrite_manifests,
            self.roll_back,
            self.publish_staged,
            self.begin_or_publish_branch,
            self.tag,
            self.change_columns,
            self.change_partitions,
            self.upgrade,
            self.change_write_modes,
        )
        for _ in range(steps):
            self.chance.choice(rows if self.chance.random() < 0.6 else others)()

    def run(self, statement: str) -> list[Any]:
        self.statements.append(statement)
        return self.lake.sql(statement).collect()

    @property
    def target(self) -> str:
        """The table, or while there is a branch sometimes that."""
        if self.branch and self.chance.random() < 0.5:
            return f"{self.name}.branch_{self.branch}"
        return self.name

    def append(self) -> None:
        self.run(f"INSERT INTO {self.target} {self._rows(self.chance.randint(4, 8))}")

    def append_again(self) -> None:
        """Add rows that are there already."""
        target = self.target
        self.run(f"INSERT INTO {target} SELECT * FROM {target} WHERE {self._condition()}")

    def delete(self) -> None:
        self.run(f"DELETE FROM {self.target} WHERE {self._condition()}")

    def update(self) -> None:
        """Change some columns of some rows, now and then to what they are."""
        chosen = self.chance.sample(sorted(self.columns), self.chance.randint(1, 2))
        values = {name: self._value(self.columns[name]) for name in chosen}
        if self.chance.random() < 0.2:
            values = {name: name for name in chosen}
        changes = ", ".join(f"{name} = {value}" for name, value in values.items())
        self.run(f"UPDATE {self.target} SET {changes} WHERE {self._condition()}")

    def merge(self) -> None:
        ids = self.chance.sample(range(9), 3)
        source = self._select([self._row(id=str(number)) for number in ids])
        changed = self.chance.choice(sorted(set(self.columns) - {"id"}))
        self.run(
            f"MERGE INTO {self.target} AS o USING ({source}) AS n ON o.id = n.id "
            f"WHEN MATCHED AND n.id = {ids[0]} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET o.{changed} = n.{changed} "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def overwrite(self) -> None:
        self.run(f"INSERT OVERWRITE {self.name} {self._rows(2)}")

    def overwrite_partitions(self) -> None:
        rows = f"{self._rows(2)} UNION ALL SELECT * FROM {self.name} WHERE {self._condition()}"
        self.statements.append(f"spark.sql({rows!r}).writeTo('{self.name}').overwritePartitions()")
        self.lake.sql(rows).writeTo(f"lake.{self.name}").overwritePartitions()

    def compact(self) -> None:
        self._call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def compact_deletes(self) -> None:
        # Iceberg fails where the deletes have several specs.
        if self.format_version > 1 and self.has_one_spec:
            self._call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")

    def rewrite_manifests(self) -> None:
        self._call("rewrite_manifests")

    def roll_back(self) -> None:
        """Make another snapshot the current one, mostly an ancestor."""
        metadata = self.lake.catalog().load_table(self.name).metadata
        chosen = self.chance.choice([snapshot.snapshot_id for snapshot in metadata.snapshots])
        self._call("set_current_snapshot", f"snapshot_id => {chosen}")

    def publish_staged(self) -> None:
        """Stage rows, let others commit in between or not, and publish the rows."""
        wap_id = f"w{next(self.numbers)}"
        with self._setting("spark.wap.id", wap_id):
            self.run(f"INSERT INTO {self.name} {self._rows(2)}")
        if self.chance.random() < 0.5:
            self.append()
        metadata = self.lake.catalog().load_table(self.name).metadata
        (staged,) = (
            snapshot.snapshot_id
            for snapshot in metadata.snapshots
            if snapshot.summary.additional_properties.get("wap.id") == wap_id
        )
        self._call("cherrypick_snapshot", f"snapshot_id => {staged}")

    def begin_or_publish_branch(self) -> None:
        if self.branch is None:
            self.branch = f"b{next(self.numbers)}"
            self.run(f"ALTER TABLE {self.name} CREATE BRANCH {self.branch}")
            return
        branch, self.branch = self.branch, None
        metadata = self.lake.catalog().load_table(self.name).metadata
        line = list(_line(metadata, metadata.refs[branch].snapshot_id))
        if metadata.current_snapshot_id in line:
            self._call("fast_forward", f"branch => 'main', to => '{branch}'")

    def tag(self) -> None:
        self.run(f"ALTER TABLE {self.name} CREATE TAG `tag-{next(self.numbers)}`")

    def change_columns(self) -> None:
        self.chance.choice(
            (self._add_column, self._drop_column, self._rename_column, self._widen, self._reorder)
        )()

    def _add_column(self) -> None:
        kind = self.chance.choice(("INT", "STRING", "FLOAT", "BINARY", "STRUCT"))
        name = f"c{next(self.numbers)}"
        place = self.chance.choice(("", "FIRST", "AFTER id"))
        self._alter(f"ADD COLUMN {name} {_sql_type(kind)} {place}")
        self.columns[name] = kind

    def _drop_column(self) -> None:
        free = sorted(set(self.columns) - {"id", "part"})
        if len(free) > 3:
            name = self.chance.choice(free)
            self._alter(f"DROP COLUMN {name}")
            del self.columns[name]

    def _rename_column(self) -> None:
        """Give a column another name, or the same name in upper case."""
        name = self.chance.choice(sorted(set(self.columns) - {"id", "part"}))
        new = self.chance.choice((name.swapcase(), f"r{next(self.numbers)}"))
        with self._setting("spark.sql.caseSensitive", "true"):
            self._alter(f"RENAME COLUMN {name} TO {new}")
        self.columns[new] = self.columns.pop(name)

    def _widen(self) -> None:
        narrow = [name for name, kind in self.columns.items() if kind in _WIDER]
        if narrow:
            name = self.chance.choice(narrow)
            wider = _WIDER[self.columns[name]]
            self._alter(f"ALTER COLUMN {name} TYPE {wider}")
            self.columns[name] = wider

    def _reorder(self) -> None:
        name = self.chance.choice(sorted(self.columns))
        self._alter(f"ALTER COLUMN {name} {'AFTER id' if name != 'id' else 'FIRST'}")

    def change_partitions(self) -> None:
        self.has_one_spec = False
        if self.partitions:
            dropped = self.partitions.pop()
            if self.format_version == 1:
                self.dropped_in_version_1.add(dropped)
            self._alter(f"DROP PARTITION FIELD {dropped}")
            return
        unreadable = self.dropped_in_version_1 if self.format_version > 1 else ()
        if possible := [field for field in _PARTITIONS if field not in unreadable]:
            self.partitions.append(self.chance.choice(possible))
            self._alter(f"ADD PARTITION FIELD {self.partitions[0]}")

    def upgrade(self) -> None:
        if self.format_version < 3:
            self.format_version += 1
            self._alter(f"SET TBLPROPERTIES ('format-version'='{self.format_version}')")
            self.change_write_modes()

    def change_write_modes(self) -> None:
        """Choose between copy-on-write and merge-on-read, which format version 1 lacks."""
        modes = ("merge-on-read", "copy-on-write")[self.format_version == 1 :]
        written = [f"'write.{name}.mode'='{self.chance.choice(modes)}'" for name in _MODES]
        scope = self.chance.choice(("file", "partition"))
        written.append(f"'write.delete.granularity'='{scope}'")
        self._alter(f"SET TBLPROPERTIES ({', '.join(written)})")

    def _alter(self, change: str) -> None:
        self.run(f"ALTER TABLE {self.name} {change}")

    def _call(self, procedure: str, *arguments: str) -> None:
        written = ", ".join((f"table => '{self.name}'", *arguments))
        self.run(f"CALL system.{procedure}({written})")

    @contextmanager
    def _setting(self, key: str, value: str) -> Iterator[None]:
        self.statements.append(f"SET {key} = {value}")
        self.lake.spark.conf.set(key, value)
        try:
            yield
        finally:
            self.statements.append(f"RESET {key}")
            self.lake.spark.conf.unset(key)

    def _condition(self) -> str:
        number = self.chance.randint(0, 8)
        return self.chance.choice(
            (
                f"id IN ({number}, {self.chance.randint(0, 8)})",
                f"id % 3 = {number % 3}",
                "part = 'a'",
                "part = 'b'",
                "part IS NULL",
                "id IS NULL",
                f"id = {number} AND part = 'a'",
            )
        )

    def _rows(self, count: int) -> str:
        rows = [self._row() for _ in range(count)]
        return self._select([*rows, rows[0]] if self.chance.random() < 0.3 else rows)

    def _row(self, **values: str) -> dict[str, str]:
        return {name: self._value(kind) for name, kind in self.columns.items()} | values

    def _value(self, kind: str) -> str:
        return f"CAST({self.chance.choice(_VALUES[kind])} AS {_sql_type(kind)})"

    def _select(self, rows: list[dict[str, str]]) -> str:
        """Write rows in the order that the columns have in the table now."""
        order = self.lake.catalog().load_table(self.name).schema().column_names
        names = [name for name in order if "." not in name]
        values = ", ".join(f"({', '.join(row[name] for name in names)})" for row in rows)
        # One file, so that deletes of some rows leave others in it.
        return f"SELECT /*+ COALESCE(1) */ * FROM VALUES {values} AS v ({', '.join(names)})"


def _sql_type(kind: str) -> str:
    return _TYPES.get(kind, kind)


def _line(metadata: Any, snapshot_id: int | None) -> Iterator[int]:
    """Yield a snapshot and its ancestors, as far as they have not expired."""
    while snapshot_id is not None and (snapshot := metadata.snapshot_by_id(snapshot_id)):
        yield snapshot_id
        snapshot_id = snapshot.parent_snapshot_id
