"""A job for a cluster, run as a program of its own: tasks decode with Neve and pyarrow, and merges.

Standard output gets one JSON document: what the executors saw, what each merge reported, and the
mirror at the end. One program, since every one carries all dependencies to the executors.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pyarrow as pa

import neve
from neve.config.merging import MergeTableSettings
from neve.errors import ConfigError
from neve.lake import Lake
from neve.lake.shared_paths import probe_shared_paths
from neve.merge.merger import Merger
from neve.merge.spec import merge_spec
from neve.merge.strategy import Strategy

ROWS = 1_000
DESCRIBED = "id BIGINT, name STRING, executable STRING, neve_from STRING, executor STRING"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("op", pa.string()), ("lsn", pa.int64())]
)
SETTINGS = MergeTableSettings(
    namespace="cluster_merge",
    changelog_table="changes",
    mirror_table="rows",
    primary_keys="id",
    sequence_column="lsn",
    partition_by="bucket(4, id)",
)
# Rows; then updates, deletes, something that cannot be taken, and what is late for all of them.
WAVES = [
    [(n, f"first {n}", "I", 10) for n in range(ROWS)],
    [
        *((n, f"second {n}", "U", 20) for n in range(0, ROWS, 2)),
        *((n, None, "D", 21) for n in range(0, ROWS, 10)),
        (None, "no key", "I", 20),
    ],
    [(n, "late", "U", 15) for n in range(0, ROWS, 2)],
]
# The index lies in the object store: its buckets are looked up by the executors.
STRATEGIES = (Strategy.AUTO, Strategy.INDEX, Strategy.INDEX)


def expected_mirror() -> list[tuple[int, str]]:
    rows = {n: f"{'second' if n % 2 == 0 else 'first'} {n}" for n in range(ROWS)}
    return sorted((n, name) for n, name in rows.items() if n % 10)


def describe_rows(batches):
    """Run on executors. This file is not there: the function travels, what it imports must be."""
    import os

    import pyarrow as pa

    from neve import errors

    for batch in batches:
        ids = batch["id"]
        yield pa.record_batch(
            {
                "id": ids,
                "name": [f"{errors.Code.STORAGE.value} {number}" for number in ids],
                "executable": [sys.executable] * len(ids),
                "neve_from": [os.path.relpath(errors.__file__)] * len(ids),
                "executor": [os.path.realpath(".")] * len(ids),
            }
        )


def write_rows(lake: Lake) -> dict[str, object]:
    lake.sql("CREATE NAMESPACE cluster")
    lake.sql(f"CREATE TABLE cluster.rows ({DESCRIBED}) USING iceberg")
    numbers = lake.spark.range(ROWS, numPartitions=4)
    numbers.mapInArrow(describe_rows, DESCRIBED).writeTo("cluster.rows").append()
    seen = lake.query(
        "SELECT count(*) AS rows, sum(id) AS ids, min(name) AS name, "
        "collect_set(executable) AS executables, collect_set(neve_from) AS neve_from, "
        "count(DISTINCT executor) AS executors FROM cluster.rows"
    )
    return seen.to_pylist()[0]


def merge_waves(lake: Lake) -> dict[str, object]:
    lake.catalog().create_namespace(SETTINGS.namespace)
    changelog = lake.catalog().create_table("cluster_merge.changes", SCHEMA)
    merger = Merger(lake, merge_spec(SETTINGS, 1_000_000))
    reports = []
    for wave, merger.strategy in zip(WAVES, STRATEGIES, strict=True):
        rows = [dict(zip(SCHEMA.names, values, strict=True)) for values in wave]
        changelog.append(pa.Table.from_pylist(rows, SCHEMA))
        reports.append(asdict(merger.merge()))
    found = lake.query("SELECT id, name FROM cluster_merge.rows ORDER BY id").to_pylist()
    return {"reports": reports, "rows": [(row["id"], row["name"]) for row in found]}


def probe(lake: Lake, path: str) -> str | None:
    """Return why a path is refused; None when it is shared."""
    try:
        probe_shared_paths(lake.spark, [path])
    except ConfigError as error:
        return error.message
    return None


def main(private: str, config: str) -> None:
    with neve.open(config) as lake:
        seen = {
            "probe": probe(lake, private),
            "tasks": write_rows(lake),
            "merges": merge_waves(lake),
            "consolidated": {
                result.table: result.rows
                for result in lake.consolidate().results
                if result.outcome == "published"
            },
            "master": lake.spark.sparkContext.master,
        }
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
