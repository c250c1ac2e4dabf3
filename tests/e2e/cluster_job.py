"""A job for a cluster, run as a program of its own: tasks decode with Neve and pyarrow.

Standard output gets one JSON document on what the executors saw.
"""

from __future__ import annotations

import json
import sys

import neve

ROWS = 1_000
SCHEMA = "id BIGINT, name STRING, executable STRING, neve_from STRING, executor STRING"


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


def main(config: str) -> None:
    with neve.open(config) as lake:
        lake.sql("CREATE NAMESPACE cluster")
        lake.sql(f"CREATE TABLE cluster.rows ({SCHEMA}) USING iceberg")
        numbers = lake.spark.range(ROWS, numPartitions=4)
        numbers.mapInArrow(describe_rows, SCHEMA).writeTo("cluster.rows").append()
        seen = lake.query(
            "SELECT count(*) AS rows, sum(id) AS ids, min(name) AS name, "
            "collect_set(executable) AS executables, collect_set(neve_from) AS neve_from, "
            "count(DISTINCT executor) AS executors FROM cluster.rows"
        )
    json.dump(seen.to_pylist()[0], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
