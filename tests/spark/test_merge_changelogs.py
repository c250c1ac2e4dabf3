"""Changelogs as other tools make them: of format version 3, with VARIANT, made again."""

from __future__ import annotations

import pyarrow as pa

from tests.support.merging import Mirrored, event


def spark_append(mirrored, *rows):
    """Append through Spark: PyIceberg writes no table of format version 3."""
    frame = mirrored.lake.spark.createDataFrame(
        pa.Table.from_pylist(list(rows), mirrored.schema)
    ).coalesce(1)
    frame.writeTo(mirrored.changelog).append()
    mirrored.rows += rows


def test_a_changelog_of_format_version_3_is_merged_in_every_mode(embedded_lake):
    mirrored = Mirrored(embedded_lake, batch_size=3)
    embedded_lake.sql(f"ALTER TABLE {mirrored.changelog} SET TBLPROPERTIES ('format-version'='3')")
    # All files of a snapshot, cut into slices; then a snapshot that fits a commit, and one that
    # does not.
    spark_append(mirrored, *(event("I", n, n % 3, f"v{n}") for n in range(4)))
    assert mirrored.merge().batches == 2
    mirrored.check()
    spark_append(mirrored, event("U", 10, 1, "u"), event("D", 11, 2))
    spark_append(mirrored, *(event("U", 20 + n, n, f"w{n}") for n in range(5)))
    assert mirrored.merge().batches == 3
    mirrored.check()
    mirrored.merger().rebuild()
    mirrored.check()
