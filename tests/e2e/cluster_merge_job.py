"""A merge for a cluster, run as a program of its own.

Standard output gets one JSON document: what each merge reported, and the mirror at the end.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pyarrow as pa

import neve
from neve.config.merging import MergeTableSettings
from neve.merge.apply import Merger
from neve.merge.spec import merge_spec
from neve.merge.strategy import Strategy

NAMESPACE = "cluster_merge"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("op", pa.string()), ("lsn", pa.int64())]
)
SETTINGS = MergeTableSettings(
    namespace=NAMESPACE,
    changelog_table="changes",
    mirror_table="rows",
    primary_keys="id",
    sequence_column="lsn",
    partition_by="bucket(4, id)",
)
# Rows; then updates, deletes, something that cannot be taken, and what is late for all of them.
WAVES = [
    [(n, f"first {n}", "I", 10) for n in range(1_000)],
    [
        *((n, f"second {n}", "U", 20) for n in range(0, 1_000, 2)),
        *((n, None, "D", 21) for n in range(0, 1_000, 10)),
        (None, "no key", "I", 20),
    ],
    [(n, "late", "U", 15) for n in range(0, 1_000, 2)],
]

# The index lies in the object store: its buckets are looked up by the executors.
STRATEGIES = (Strategy.AUTO, Strategy.INDEX, Strategy.INDEX)


def expected() -> list[tuple[int, str]]:
    rows = {n: f"{'second' if n % 2 == 0 else 'first'} {n}" for n in range(1_000)}
    return sorted((n, name) for n, name in rows.items() if n % 10)


def main(config: str) -> None:
    reports = []
    with neve.open(config) as lake:
        catalog = lake.catalog()
        catalog.create_namespace(NAMESPACE)
        changelog = catalog.create_table(f"{NAMESPACE}.changes", SCHEMA)
        merger = Merger(lake, merge_spec(SETTINGS, 1_000_000))
        for wave, merger.strategy in zip(WAVES, STRATEGIES, strict=True):
            rows = [dict(zip(SCHEMA.names, values, strict=True)) for values in wave]
            changelog.append(pa.Table.from_pylist(rows, SCHEMA))
            reports.append(asdict(merger.merge()))
        found = lake.query(f"SELECT id, name FROM {NAMESPACE}.rows ORDER BY id").to_pylist()
        master = lake.spark.sparkContext.master
    mirror = [(row["id"], row["name"]) for row in found]
    json.dump({"reports": reports, "rows": mirror, "master": master}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
