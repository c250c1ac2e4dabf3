"""What a REST catalog's rules do not allow is refused before anything is sent."""

import pytest

from neve.errors import UnsupportedError
from neve.lake.rest_updates import table_updates
from tests.support.table_documents import TableHistory, columns


def make_table(format_version=2):
    table = TableHistory("s3://lake/orders", format_version)
    table.append()
    return table, table.metadata()


def actions(base, table):
    _, updates = table_updates(base, table.metadata())
    return [update["action"] for update in updates]


def test_a_plain_commit_sends_one_snapshot_and_one_ref():
    table, base = make_table()
    table.append()
    assert actions(base, table) == ["add-snapshot", "set-snapshot-ref"]
    assert actions(table.metadata(), table) == []


def test_every_ref_and_the_shape_of_the_table_are_asserted():
    table, base = make_table()
    table.append(branch="audit")
    required, _ = table_updates(base, table.metadata())
    assert {"type": "assert-table-uuid", "uuid": base.uuid} in required
    refs = {each["ref"]: each["snapshot-id"] for each in required if "ref" in each}
    assert refs == {"main": 101, "audit": None}
    assert {each["type"] for each in required} >= {
        "assert-current-schema-id",
        "assert-default-spec-id",
        "assert-last-assigned-field-id",
    }


def test_a_spec_is_added_while_its_column_is_in_the_current_schema():
    table, base = make_table()
    table.set_columns(columns("id", "size", "day"))
    table.partition_by(3, "day")
    table.set_columns([*columns("id", "size"), *columns("week", first_id=4)])
    table.document["default-spec-id"] = 0
    _, updates = table_updates(base, table.metadata())
    sent = [(each["action"], each.get("schema-id")) for each in updates]
    assert sent == [
        ("add-schema", None),
        ("add-schema", None),
        ("set-current-schema", 1),
        ("add-spec", None),
        ("set-current-schema", 2),
    ]


def _skip_a_schema(table):
    """As Iceberg leaves it, which removes the schemas that no snapshot needs."""
    table.set_columns(columns("id", "size", "day"))
    table.set_columns(columns("id", "size", "day", "week"))
    table.document["schemas"].pop(1)


def _drop_a_column_for_ever(table):
    table.document["last-column-id"] = 9


def _repeat_a_schema(table):
    table.set_columns(columns("id", "size"))


def _publish_an_older_snapshot(table):
    table.append()
    table.document["snapshots"][-1]["sequence-number"] = 1


@pytest.mark.parametrize(
    "change",
    [_skip_a_schema, _drop_a_column_for_ever, _repeat_a_schema, _publish_an_older_snapshot],
)
def test_what_the_server_would_number_otherwise_is_refused(change):
    table, base = make_table()
    change(table)
    with pytest.raises(UnsupportedError) as refusal:
        actions(base, table)
    assert "--replace" in refusal.value.hint


def test_row_ids_that_the_target_gave_itself_are_refused():
    table, base = make_table(format_version=3)
    base.document["next-row-id"] = 50
    table.append()
    with pytest.raises(UnsupportedError, match="row ids"):
        actions(base, table)


def test_row_ids_of_expired_snapshots_are_skipped():
    table, base = make_table(format_version=3)
    expired = table.append(rows=20)
    table.append(rows=5)
    table.expire(expired)
    _, updates = table_updates(base, table.metadata())
    placeholder, added, _, removal = updates
    assert placeholder["snapshot"]["added-rows"] == 20
    assert "parent-snapshot-id" not in placeholder["snapshot"]
    assert added["snapshot"]["first-row-id"] == 30
    assert removal["snapshot-ids"] == [placeholder["snapshot"]["snapshot-id"]]
