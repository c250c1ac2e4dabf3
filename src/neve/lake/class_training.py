"""Make the class archive: start Spark once, do what commands do, keep the classes that took.

`python -m neve.lake.class_training` does nothing if this environment's archive is there.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from neve.config import Settings
from neve.errors import NeveError, SetupError
from neve.lake import class_archive, jvm
from neve.lake.jars import ensure_jars
from neve.lake.java import find_java
from neve.lake.lake import Lake

if TYPE_CHECKING:
    import pyarrow as pa

# Spark's launcher gives them to the JVM that runs Spark, and not to its own.
_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
_STATEMENTS = """
CREATE NAMESPACE shop;
CREATE TABLE shop.orders (
  id BIGINT, placed TIMESTAMP, tags MAP<STRING, STRING>, price DECIMAL(9, 2))
USING iceberg PARTITIONED BY (days(placed)) TBLPROPERTIES ('format-version' = '3',
  'write.merge.mode' = 'merge-on-read', 'write.delete.mode' = 'merge-on-read');
INSERT INTO shop.orders
SELECT id, timestamp_seconds(id * 86400), map('k', string(id)), id FROM range(4);
MERGE INTO shop.orders AS o USING (SELECT id, price FROM shop.orders) AS n ON o.id = n.id
WHEN MATCHED AND n.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET price = n.price + 1
WHEN NOT MATCHED THEN INSERT (id, price) VALUES (n.id, n.price);
DELETE FROM shop.orders WHERE id = 2;
ALTER TABLE shop.orders ADD COLUMN note STRING;
CALL system.expire_snapshots(table => 'shop.orders')
"""
_QUERIES = """
SELECT tags['k'] AS k, count(*), sum(price), min(placed) FROM shop.orders
WHERE placed < current_timestamp() GROUP BY k ORDER BY k;
SELECT a.id, row_number() OVER (PARTITION BY a.id ORDER BY a.placed DESC) AS nth
FROM shop.orders AS a LEFT JOIN shop.orders AS b ON a.id = b.id LIMIT 3;
SELECT * FROM shop.orders.snapshots
"""


def make_archive(report: Callable[[str], None]) -> None:
    """Make this environment's archive if it is missing.

    Atomic. Two processes may make it at the same time; the archive of the later one stays. Spark
    must not run in this process before.

    Raises:
        NeveError: Spark does not start, or its JVM wrote no archive.
        OSError: the cache cannot be written.
    """
    java = find_java()
    archive = class_archive.archive_of(java, ensure_jars(java, report))
    if archive.find():
        return
    report("making the class archive, for faster starts of Spark (once)")
    scratch = archive.scratch()
    try:
        file = scratch / "classes"
        options = [os.environ.get(_OPTIONS_VARIABLE, ""), *class_archive.make_options(file)]
        os.environ[_OPTIONS_VARIABLE] = " ".join(options)
        _train(scratch)
        jvm.end_jvm()
        if not file.exists():
            raise SetupError(
                f"Java at {java} wrote no class archive",
                hint="it can do so only without SPARK_CONF_DIR and HADOOP_CONF_DIR, since an "
                "archive's class path has jars alone",
            )
        archive.keep(file)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _train(directory: Path) -> None:
    """Have Spark load what most commands need: a lake, writes, reads, tasks in Python."""
    settings = Settings.model_validate(
        {
            "catalog": {
                "type": "sqlite",
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": str(directory / "warehouse"),
            },
            "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "1g"}},
        }
    )
    with Lake(settings) as lake:
        for statement in _STATEMENTS.split(";"):
            lake.sql(statement).collect()
        for statement in _QUERIES.split(";"):
            lake.query(statement)
        rows = lake.sql("SELECT id, tags FROM shop.orders")
        rows.mapInArrow(_unchanged, rows.schema).collect()


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def main() -> int:
    try:
        make_archive(lambda line: print(line, flush=True))  # noqa: T201 - a command's own output
    except (NeveError, OSError) as error:
        sys.stderr.write(f"no class archive was made: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
