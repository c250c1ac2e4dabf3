"""Building and searching an index in Spark's tasks, from a table's own rows."""

import json
import uuid

import numpy as np
import pyarrow as pa

from neve.index.compaction import write_run
from neve.index.entries import TOMBSTONE, SequenceType, make_entries
from neve.index.hashing import compute_pk_hash
from neve.index.root import KeyColumn, Root, index_location
from neve.index.search import lookup
from neve.index.shard import ShardRef
from neve.lake.catalog import load_table

BITS = 3


def build(table, files):
    """Return a function for tasks: all rows of some keys in, a shard out."""
    location = index_location(table.location(), str(table.metadata.table_uuid))
    properties, ordinals = dict(table.io.properties), {path: n for n, path in enumerate(files)}

    def work(batches):
        from pyiceberg.io import load_file_io

        rows = pa.Table.from_batches(batches)
        if not len(rows):
            return
        file = [ordinals[path] for path in rows.column("_file").to_pylist()]
        first, second = compute_pk_hash([rows.column("id")])
        entries = make_entries(first, second, file, rows.column("_pos"), rows.column("seq"))
        shard = write_run(load_file_io(properties, location), location, entries, 1, BITS)
        yield pa.RecordBatch.from_pydict({"shard": [json.dumps(shard.to_json())]})

    return work


def search(root_json, properties):
    def work(batches):
        for batch in batches:
            found = lookup(root_json, properties, *compute_pk_hash([batch.column("id")])).to_batch()
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column("id"),
                    *(found.column(name) for name in ("file", "position", "found")),
                ],
                ["id", "file", "position", "found"],
            )

    return work


def test_every_row_is_found_where_it_is(embedded_lake):
    lake = embedded_lake
    namespace = f"n{uuid.uuid4().hex[:8]}"
    lake.sql(f"CREATE NAMESPACE {namespace}").collect()
    lake.sql(f"CREATE TABLE {namespace}.t (id bigint, seq bigint) USING iceberg").collect()
    for start in (0, 3000):
        lake.sql(
            f"INSERT INTO {namespace}.t SELECT id, id * 2 FROM range({start}, {start + 2500})"
        ).collect()
    table = load_table(lake.profile, lake.catalog(), (namespace, "t"))
    rows = lake.sql(f"SELECT id, seq, _file, _pos FROM {namespace}.t")
    truth = {row.id: (row._file, row._pos) for row in rows.collect()}
    files = sorted({file for file, _ in truth.values()})

    shards = rows.repartition(2, "id").mapInArrow(build(table, files), "shard string").collect()
    root = Root(
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=table.metadata.current_snapshot_id,
        key_columns=(KeyColumn("id", 1),),
        sequence_columns=("seq",),
        sequence_type=SequenceType.INTEGER,
        checked=False,
        bits=BITS,
        files=tuple(files),
        shards=tuple(ShardRef(**json.loads(row.shard)) for row in shards),
    )
    assert root.rows == len(truth)
    found = (
        lake.spark.range(0, 6000, numPartitions=3)
        .mapInArrow(
            search(root.to_json(), dict(table.io.properties)),
            "id long, file int, position long, found boolean",
        )
        .toArrow()
        .to_pylist()
    )
    known = {row["id"]: (files[row["file"]], row["position"]) for row in found if row["found"]}
    assert known == truth
    assert TOMBSTONE not in {row["file"] for row in found}
    assert np.sum([not row["found"] for row in found]) == 1000
