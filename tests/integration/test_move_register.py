"""A moved table becomes known in its catalog: atomically, once, and never over other's work."""

import uuid

import pytest

import neve
from neve.errors import CatalogError, Code
from neve.lake.registering import registered_table
from neve.lake.table_ref import TableRef
from neve.move.leave_behind import leave_behind
from neve.move.register import Outcome, read_target, register
from neve.move.spec import Existing
from tests.support.lakes import postgres_settings, rest_settings, sqlite_settings
from tests.support.table_documents import TableHistory, columns, write_metadata

REFUSE, EXTEND, REPLACE = Existing


@pytest.fixture(params=["sqlite", "postgres", "rest"])
def lake(request, tmp_path):
    """A target catalog; no Spark."""
    if request.param == "sqlite":
        settings = sqlite_settings(tmp_path)
    elif request.param == "postgres":
        postgres, s3 = map(request.getfixturevalue, ("postgres", "s3"))
        settings = postgres_settings(postgres, s3)
    else:
        rest, s3 = map(request.getfixturevalue, ("rest_catalog", "s3"))
        settings = rest_settings(rest.uri, s3)
    with neve.open(settings) as opened:
        yield opened


class Move:
    """Moves of one table that has no files: its metadata is written as it is."""

    def __init__(self, lake, location, name="orders", format_version=2):
        self.lake = lake
        self.target = TableRef("lake", (f"t_{uuid.uuid4().hex[:12]}", name))
        self.source = TableHistory(f"{location}/{uuid.uuid4().hex}", format_version)

    def moved(self):
        version = leave_behind(self.source.metadata(), "orders").metadata
        return write_metadata(self.lake.catalog().properties, version)

    def run(self, existing=REFUSE, moved=None, **options):
        expected = read_target(self.lake, self.target)
        return register(
            self.lake, self.target, moved or self.moved(), existing, expected, **options
        )

    def read(self):
        return read_target(self.lake, self.target)


def make_move(lake, tmp_path, **options):
    on_disk = lake.profile.settings.type == "sqlite"
    location = (tmp_path / "moved").as_uri() if on_disk else "s3://lake/moved"
    return Move(lake, location, **options)


@pytest.fixture
def move(lake, tmp_path):
    return make_move(lake, tmp_path)


def test_a_new_table_is_registered_with_its_namespace_and_once(move):
    move.source.append()
    move.source.append(branch="audit")
    moved = move.moved()
    first = move.run(moved=moved)
    again = move.run(moved=moved)
    assert (first.outcome, again.outcome) == (Outcome.REGISTERED, Outcome.ALREADY_THERE)
    assert move.read().refs == move.source.refs
    assert move.lake.catalog().load_table(move.target.identifier).current_snapshot()


def test_another_table_of_the_name_is_refused(move):
    move.source.append()
    move.run()
    other = TableHistory(move.source.location + "-other")
    other.append()
    before = move.read()
    move.source = other
    with pytest.raises(CatalogError, match="exists already") as refusal:
        move.run()
    assert refusal.value.code is Code.CONFLICT
    assert "--incremental" in refusal.value.hint
    with pytest.raises(CatalogError, match="another table"):
        move.run(EXTEND)
    assert move.read() == before


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_an_extended_target_has_what_the_source_has_and_what_is_its_own(
    lake, tmp_path, format_version
):
    move = make_move(lake, tmp_path, format_version=format_version)
    source = move.source
    first = source.append()
    source.point("daily", first, "tag")
    source.document["properties"]["removed-later"] = "yes"
    move.run()
    _set_at_target(move, "own-tag", first)

    source.set_columns(columns("id", "size", "day"))
    source.partition_by(3, "day")
    source.append(rows=7)
    source.set_columns([*columns("id", "size"), *columns("week", first_id=4)])
    source.document["default-spec-id"] = 0
    newest = source.append(branch="audit")
    del source.document["refs"]["daily"], source.document["properties"]["removed-later"]
    outcome = move.run(EXTEND).outcome

    target = move.read()
    assert outcome is Outcome.EXTENDED
    assert target.refs == {**source.refs, "own-tag": first}
    assert target.snapshots.keys() == {101, 102, 103}
    assert target.snapshots[newest]["manifest-list"].endswith(f"snap-{newest}.avro")
    assert [spec["spec-id"] for spec in target.partition_specs] == [0, 1]
    assert len(target.schemas) == len(source.document["schemas"])
    assert target.current_schema_id == 2
    assert target.document["last-column-id"] == 4
    assert target.document.get("next-row-id") == source.document.get("next-row-id")
    assert target.properties["owner"] == "source"
    assert target.properties["own"] == "target"
    assert "removed-later" not in target.properties
    assert move.run(EXTEND, moved=move.moved()).outcome is Outcome.EXTENDED


def _set_at_target(move, tag, snapshot_id):
    """Make a tag and a property at the target, as its own users do."""
    table = registered_table(move.lake, move.target)
    base = table.read()
    refs = {**base.document["refs"], tag: {"snapshot-id": snapshot_id, "type": "tag"}}
    properties = {**base.properties, "own": "target"}
    table.extend(base, {**base.document, "refs": refs, "properties": properties})
