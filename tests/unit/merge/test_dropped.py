"""When the files of a changelog still have a column that was dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from neve.errors import CatalogError
from neve.merge.drift import find_drift
from neve.merge.dropped import needs_schema, older_schemas, require_no_loss
from neve.merge.mirror import mirror_schema
from neve.merge.spec import MergeSpec
from tests.support.snapshots import append, metadata_of
from tests.support.snapshots import replace as rewrite

SPEC = MergeSpec(("ns", "changes"), ("ns", "rows"), ("id",), ("lsn",))
NOW = (NestedField(1, "id", LongType()), NestedField(2, "lsn", LongType()))
OP, NAME = NestedField(3, "op", StringType()), NestedField(4, "name", StringType())
BEFORE, AFTER = Schema(*NOW, OP, NAME, schema_id=0), Schema(*NOW, OP, schema_id=1)
MIRROR = mirror_schema(SPEC, BEFORE)


def changelog(*snapshots, schemas=(BEFORE, AFTER)):
    """Return a table that has dropped `name`; snapshots are given with the id of their schema."""
    made = [one.model_copy(update={"schema_id": schema}) for one, schema in snapshots]
    update = {"schemas": list(schemas), "current_schema_id": 1}
    return metadata_of(*made).model_copy(update=update)


def drift_of(table):
    origins = {1: 1, 2: 2, 4: 4}
    return find_drift(SPEC, table.schema(), MIRROR, origins, older_schemas(table))


def test_only_snapshots_from_before_the_drop_are_read_with_the_old_field():
    table = changelog((append(1), 0), (append(2), 0), (append(3), 1), (append(4), 1))
    schema = drift_of(table).read_schema
    assert needs_schema(table, schema, 1, 3)
    assert needs_schema(table, schema, None, 4)
    assert not needs_schema(table, schema, 2, 4)


def rewritten(snapshot_id):
    snapshot = rewrite(snapshot_id)
    snapshot.summary["deleted-data-files"] = "1"
    return snapshot


@pytest.mark.parametrize(
    ("snapshots", "schemas", "reason"),
    [
        ([(append(1), 0), (append(2), 1)], (BEFORE, AFTER), None),
        # Compacted before the drop; and manifests alone rewritten after it.
        ([(append(1), 0), (rewritten(2), 0), (rewrite(3), 1)], (BEFORE, AFTER), None),
        ([(append(1), 0), (rewritten(2), 1)], (BEFORE, AFTER), "compacted since"),
        # Expiry with clean_expired_metadata forgets schemas.
        ([(append(1), 1)], (AFTER,), "no schema"),
    ],
)
def test_a_rebuild_is_refused_when_values_are_lost(snapshots, schemas, reason):
    table = changelog(*snapshots, schemas=schemas)
    if reason is None:
        require_no_loss(SPEC, table, MIRROR, drift_of(table))
        return
    with pytest.raises(CatalogError, match=f"no column name any more.*{reason}") as caught:
        require_no_loss(SPEC, table, MIRROR, drift_of(table))
    assert "ALTER TABLE ns.rows DROP COLUMN name" in caught.value.hint


@pytest.mark.parametrize("name", ["name", "title"])
def test_a_rebuild_is_refused_when_only_another_field_of_the_column_is_left(name):
    """Dropped, and added again under its own or a new name; then compacted."""
    spec = replace(SPEC, rename={"name": "title"}) if name == "title" else SPEC
    added = Schema(*NOW, OP, NestedField(5, name, StringType()), schema_id=1)
    for snapshots, is_lost in (
        ([(append(1), 0), (append(2), 1)], False),
        ([(append(1), 0), (rewritten(2), 1)], True),
    ):
        table = changelog(*snapshots, schemas=(BEFORE, added))
        drift = find_drift(spec, added, MIRROR, {1: 1, 2: 2, 4: 4}, older_schemas(table))
        if not is_lost:
            require_no_loss(spec, table, MIRROR, drift)
            continue
        with pytest.raises(CatalogError, match="compacted since") as caught:
            require_no_loss(spec, table, MIRROR, drift)
        assert "ALTER TABLE ns.rows DROP COLUMN name" in caught.value.hint


def test_values_of_a_renamed_column_are_read_though_its_old_name_is_not_included():
    spec = replace(SPEC, rename={"name": "title"}, include=frozenset({"title"}))
    added = Schema(*NOW, OP, NestedField(5, "title", StringType()), schema_id=1)
    drift = find_drift(spec, added, MIRROR, {1: 1, 2: 2, 4: 4}, (BEFORE,))
    assert [(each.field.name, each.column.name) for each in drift.dropped] == [("name", "title")]


def test_a_rebuild_is_refused_while_a_rename_is_open():
    """All rows with a value in the renamed column would be set aside."""
    title = NestedField(4, "title", StringType())
    table = changelog((append(1), 0), schemas=(BEFORE, Schema(*NOW, OP, title, schema_id=1)))
    with pytest.raises(CatalogError, match="was renamed to title") as caught:
        require_no_loss(SPEC, table, MIRROR, drift_of(table))
    assert "rename: {name: title}" in caught.value.hint
