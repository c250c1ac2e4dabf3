"""A table that PyIceberg made is whole at its new home, with the old one deleted."""

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.moving import check_lengths, move_directory

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "day", StringType(), required=False),
)


def rows(start, count, day="a b%2F+ü"):
    return pa.table({"id": list(range(start, start + count)), "day": [day] * count})


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "orders"
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    catalog.create_namespace("ns")
    yield catalog, directory
    catalog.engine.dispose()


def read_all(metadata_location):
    table = StaticTable.from_metadata(metadata_location)
    return {
        snapshot.snapshot_id: sorted(
            table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist()
        )
        for snapshot in table.metadata.snapshots
    }


@pytest.mark.parametrize("version", ["1", "2"])
def test_every_snapshot_reads_the_same_elsewhere(source, tmp_path, version):
    catalog, directory = source
    table = catalog.create_table(
        "ns.orders",
        SCHEMA,
        location=f"file://{directory}",
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day")),
        properties={"format-version": version, "write.data.path": f"file://{directory}/d"},
    )
    table.append(rows(0, 5))
    table.append(rows(5, 5, "plain"))
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "first").commit()
    table.delete("id = 3")  # leaves DELETED entries
    with table.update_spec() as spec:
        spec.remove_field("day")
    with table.update_schema() as schema:
        schema.add_column("more", StringType())
    table.append(rows(10, 2))
    table.delete("day = 'plain'")
    before = read_all(table.metadata_location)

    moved = move_directory(
        table.metadata_location, f"file://{directory}", f"file://{tmp_path}/new home/orders"
    )

    check_lengths(moved)
    assert read_all(moved.table.metadata.path) == before
    assert moved.table.document["properties"]["write.data.path"].endswith("/new home/orders/d")
    assert str(directory) + "/" not in str(moved.table.document)
    # One manifest for each of the source, however many snapshots share it.
    assert len(moved.source.files) == len(moved.target.files)
