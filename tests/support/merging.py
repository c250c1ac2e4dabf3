"""A changelog, its mirror, and the plain replay that the mirror must equal."""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml
from pyiceberg.table.snapshots import ancestors_of

from neve.config.merging import MergeTableSettings
from neve.lake import Lake
from neve.lake.commit_loop import RetryPolicy
from neve.lake.jvm.tables import load
from neve.merge.merger import Merger
from neve.merge.plan import LoadedTables
from neve.merge.report import TableReport
from neve.merge.spec import MergeSpec, merge_spec
from neve.merge.strategy import Strategy
from tests.support.replay import Event, changelog_event, replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPERATIONS = {
    "r": "snapshot-read",
    "I": "insert",
    "U": "update",
    "D": "delete",
    "T": "truncate",
    "c": "insert",
    "u": "update",
    "d": "delete",
    "t": "truncate",
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.int64()),
        ("op", pa.string()),
        ("lsn", pa.int64()),
    ]
)
_namespaces = itertools.count()
_FAR_FUTURE = 4_102_444_800_000  # in milliseconds: the year 2100


class Mirrored:
    """One changelog in a namespace of its own, merged by hand."""

    def __init__(
        self,
        lake: Lake,
        schema: pa.Schema = SCHEMA,
        batch_size: int = 1_000_000,
        strategy: Strategy | None = None,
        **settings: Any,
    ) -> None:
        self.lake = lake
        self.namespace = f"merge_{next(_namespaces)}_{random.randrange(10**9)}"
        self.schema = schema
        keys = {"primary_keys": "id", "sequence_column": "lsn", **settings}
        self.settings = MergeTableSettings(
            namespace=self.namespace, changelog_table="changes", mirror_table="rows", **keys
        )
        lake.catalog().create_namespace(self.namespace)
        lake.catalog().create_table(self.changelog, schema)
        self.batch_size = batch_size
        # Each merge another way, so that every way goes on from what another one left.
        self.strategies = itertools.cycle(
            [strategy]
            if strategy
            else [Strategy.INDEX, Strategy.SCAN, Strategy.INDEX, Strategy.MERGE]
        )
        self.rows: list[dict[str, Any]] = []
        # Kept as by one worker that goes on from turn to turn, whatever happens to the tables.
        self.loaded = LoadedTables()

    def go_to(self, lake: Lake) -> None:
        """Go on with tables that were moved there, as another worker."""
        self.lake = lake
        self.loaded = LoadedTables()

    @property
    def changelog(self) -> str:
        return f"{self.namespace}.changes"

    @property
    def mirror(self) -> str:
        return f"{self.namespace}.rows"

    @property
    def spec(self) -> MergeSpec:
        return merge_spec(self.settings, self.batch_size)

    def write_config(self, path: Path, **sections: Any) -> Path:
        """Write a configuration that keeps this mirror; the secret key is left to the caller."""
        document = self.lake.settings.model_dump(
            mode="json", exclude_none=True, include={"catalog", "storage", "spark"}
        )
        document["storage"].pop("secret_access_key", None)
        table = self.settings.model_dump(mode="json", exclude_none=True)
        merge = {"tables": [table], "batch_size": self.batch_size, **sections.pop("merge", {})}
        path.write_text(yaml.safe_dump({**document, "merge": merge, **sections}))
        return path

    def append(self, *rows: dict[str, Any], schema: pa.Schema | None = None) -> None:
        """Append events as one snapshot; a column that is left out is NULL."""
        table = self.lake.catalog().load_table(self.changelog)
        table.append(pa.Table.from_pylist(list(rows), schema or self.schema))
        self.rows += rows

    def merger(self, **options: Any) -> Merger:
        options.setdefault("strategy", next(self.strategies))
        retry = RetryPolicy(
            attempts=options.pop("attempts", 4), first_seconds=0.001, most_seconds=0.01
        )
        options.setdefault("loaded", self.loaded)
        return Merger(self.lake, self.spec, retry, **options)

    def merge(self, **options: Any) -> TableReport:
        return self.merger(**options).merge()

    def table(self, name: str = "rows") -> Any:
        return self.lake.catalog().load_table(f"{self.namespace}.{name}")

    @property
    def both(self) -> tuple[str, str]:
        return self.changelog, self.mirror

    def compact(self, table: str) -> None:
        """Write every file of a table anew."""
        self.lake.sql(
            f"CALL system.rewrite_data_files(table => '{table}', "
            "options => map('rewrite-all', 'true'))"
        ).collect()

    def expire(self, table: str) -> None:
        """Keep a table's present snapshot only, and what refs name.

        By Iceberg itself: its procedure does the same in several jobs of Spark.
        """
        java = load(self.lake.spark, self.lake.ref(table))
        java.expireSnapshots().expireOlderThan(_FAR_FUTURE).retainLast(1).commit()

    def past(self) -> list[int]:
        """Return the mirror's snapshots that can be gone back to, the newest first."""
        metadata = self.table().metadata
        main = metadata.snapshot_by_name("main")
        return [snapshot.snapshot_id for snapshot in ancestors_of(main, metadata)]

    def roll_back(self, snapshot_id: int) -> None:
        self.lake.sql(f"CALL system.rollback_to_snapshot('{self.mirror}', {snapshot_id})").collect()

    def found(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Read the mirror without Spark; two rows of one key are a failure."""
        rows = self.table().scan().to_arrow().to_pylist()
        by_key = {tuple(row[key] for key in self.spec.keys): row for row in rows}
        assert len(by_key) == len(rows), "a key is in the mirror twice"
        return by_key

    def events(self) -> list[Event]:
        filled = [{name: row.get(name) for name in self.schema.names} for row in self.rows]
        sequence = self.spec.sequence[0] if len(self.spec.sequence) == 1 else self.spec.sequence
        return [
            changelog_event(
                row,
                keys=self.spec.keys,
                sequence=sequence,
                op=self.spec.operation_column,
                operations=OPERATIONS,
            )
            for row in filled
        ]

    def wanted(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Replay what was appended."""
        others = [
            name
            for name in self.schema.names
            if name not in (*self.spec.keys, *self.spec.sequence, self.spec.operation_column)
        ]

        def content(row: dict[str, Any]) -> tuple[Any, ...]:
            # Columns from left to right, NULL lowest.
            return tuple((row[name] is not None, row[name]) for name in others)

        marker = self.spec.unchanged_marker
        return replay(self.events(), unchanged=marker, content=content).mirror

    def check(self) -> None:
        assert self.found() == self.wanted()


def event(
    op: str | None, lsn: int | None, key: int | None, name: str | None = None, amount: int = 0
) -> dict[str, Any]:
    return {"op": op, "lsn": lsn, "id": key, "name": name, "amount": amount}


@contextmanager
def evolving(mirrored: Mirrored) -> Iterator[Any]:
    """Change the changelog's columns, then go on with what it has."""
    with mirrored.table("changes").update_schema(allow_incompatible_changes=True) as update:
        yield update
    mirrored.schema = mirrored.table("changes").schema().as_arrow()
