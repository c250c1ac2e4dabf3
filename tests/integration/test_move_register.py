"""A moved table becomes known in its catalog: atomically, once, and never over other's work."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

import neve
from neve.errors import CatalogError, Code, UnsupportedError
from neve.lake.table_ref import TableRef
from neve.move.extension import without_expired
from neve.move.leave_behind import leave_behind
from neve.move.register import Outcome, read_target, register
from tests.support.gates import registers_over
from tests.support.lakes import postgres_settings, rest_settings, sqlite_settings
from tests.support.proxy import running_proxy
from tests.support.registrations import (
    EXTEND,
    REFUSE,
    REPLACE,
    append_at,
    commit_at_target,
    make_move,
    roll_back,
    without_snapshot,
)
from tests.support.table_documents import TableHistory, columns, write_metadata


# PostgreSQL differs from SQLite in one statement each of two methods.
@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.soak), "rest"])
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


def test_what_the_source_has_expired_stays_at_the_target(lake, tmp_path):
    """Its row ids are counted as given, so that no new row gets one of them."""
    move = make_move(lake, tmp_path, format_version=3)
    source = move.source
    first = source.append(rows=10)
    move.run()
    never_moved, kept = source.append(rows=20), source.append(rows=5)
    source.expire(first, never_moved)
    move.run(EXTEND)
    last = source.append(rows=3)
    source.expire(kept)
    move.run(EXTEND)

    target = move.read()
    assert target.snapshots.keys() == {first, kept, last}
    assert target.refs == {"main": last}
    assert target.document["next-row-id"] == 38
    assert target.document["last-sequence-number"] == 4


def test_what_the_target_has_expired_is_not_added_again(move):
    source = move.source
    old, kept = source.append(), source.append()
    move.run()
    commit_at_target(move, lambda target: target.update(without_snapshot(target, old)))
    source.append()
    present = move.read()
    version = without_expired(leave_behind(source.metadata(), "orders").metadata, present)
    move.run(EXTEND, moved=write_metadata(move.lake.catalog().properties, version))
    assert move.read().snapshots.keys() == {kept, 103}


def test_an_expiry_at_the_target_during_the_move_is_noticed(move):
    """What the plan did not copy, since it was there, may be deleted by now."""
    source = move.source
    old = source.append()
    source.append()
    move.run()
    planned = move.read()
    commit_at_target(move, lambda target: target.update(without_snapshot(target, old)))
    source.append()
    with pytest.raises(CatalogError, match="expired while"):
        register(move.lake, move.target, move.moved(), EXTEND, planned)
    assert move.read().refs == {"main": 102}


def test_a_staged_batch_that_was_left_behind_follows_when_it_is_published(move):
    source = move.source
    source.append()
    staged = source.stage(parent_id=101)
    source.point("neve-staged-b1", staged, "tag")
    move.run()
    assert move.read().snapshots.keys() == {101}
    source.point("main", staged)
    move.run(EXTEND)
    assert move.read().refs == {"main": staged}


def test_a_source_that_expired_its_newest_snapshot_is_followed(move):
    source = move.source
    first, newest = source.append(), source.append()
    move.run()
    source.point("main", first)
    source.expire(newest)
    move.run(EXTEND)
    source.point("again", first, "tag")
    move.run(EXTEND)
    target = move.read()
    assert target.refs == {"main": first, "again": first}
    assert newest in target.snapshots


def test_a_rollback_at_the_source_is_followed(move):
    source = move.source
    first, second = source.append(), source.append()
    move.run()
    source.point("main", first)
    move.run(EXTEND)
    assert move.read().refs == {"main": first}
    if move.lake.profile.settings.type == "rest":
        _append_too_early(move)
    source.now_ms = int(time.time() * 1000)
    third = source.append()
    move.run(EXTEND)
    target = move.read()
    assert target.refs == {"main": third}
    assert {first, second, third} <= target.snapshots.keys()


def _append_too_early(move):
    """A server gives the rollback its own time, and takes no older commit after it."""
    move.source.append()
    before = move.read()
    with pytest.raises(UnsupportedError, match="rollback"):
        move.run(EXTEND)
    assert move.read() == before


def test_an_upgrade_of_the_source_is_followed(move):
    source = move.source
    source.append()
    move.run()
    source.append()
    source.upgrade(3)
    source.set_columns([*columns("id", "size"), {"id": 3, "name": "v", **OPTIONAL_VARIANT}])
    source.append(rows=4)
    move.run(EXTEND)
    target = move.read()
    assert target.format_version == 3
    assert target.document["next-row-id"] == 4
    assert target.snapshots.keys() == {101, 102, 103}


OPTIONAL_VARIANT = {"required": False, "type": "variant"}


def _add_column(document):
    history = TableHistory(document["location"], document["format-version"])
    history.document = document
    history.set_columns(columns("id", "size", "own"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (append_at, "snapshot 901 was written there"),
        (lambda document: append_at(document, "audit"), "snapshot 901 was written there"),
        (roll_back, "main was moved there"),
        (_add_column, "schema"),
    ],
)
def test_a_target_that_was_written_to_is_refused(move, change, reason):
    move.source.append()
    move.source.append()
    move.run()
    commit_at_target(move, change)
    before = move.read()
    move.source.append()
    with pytest.raises(CatalogError, match=reason) as refusal:
        move.run(EXTEND)
    assert refusal.value.code is Code.CONFLICT
    assert move.read() == before


def test_a_write_between_the_plan_and_the_registration_is_noticed(move):
    move.source.append()
    move.run()
    planned = move.read()
    commit_at_target(move, append_at)
    before = move.read()
    move.source.append()
    for existing in (EXTEND, REPLACE):
        with pytest.raises(CatalogError, match="written"):
            register(move.lake, move.target, move.moved(), existing, planned)
    assert move.read() == before


def test_a_table_that_was_moved_by_other_tools_is_extended_if_the_source_has_its_history(move):
    source = move.source
    source.append()
    properties = move.lake.catalog().properties
    # No property says which version it is.
    move.run(moved=write_metadata(properties, source.metadata()))
    source.append()
    move.run(EXTEND)
    assert move.read().snapshots.keys() == {101, 102}

    commit_at_target(move, _without_record)
    source.point("main", 101)
    source.append()
    with pytest.raises(CatalogError, match="main is at snapshot 102"):
        move.run(EXTEND)


def _without_record(document):
    document["properties"] = {"owner": "source"}


def test_a_replaced_table_is_exactly_the_sources_version(move, request):
    if move.lake.profile.settings.type == "rest":
        move.lake = request.getfixturevalue("replacing_lake")
    move.source.append()
    moved = move.moved()
    move.run(moved=moved)
    commit_at_target(move, append_at)
    # The very version that the table had: its metadata file is in the table's log already.
    assert move.run(REPLACE, moved=moved).outcome is Outcome.REPLACED
    assert move.read().snapshots.keys() == {101}
    commit_at_target(move, append_at)
    move.source.append()
    assert move.run(REPLACE).outcome is Outcome.REPLACED
    assert move.read().snapshots.keys() == {101, 102}


@pytest.fixture
def replacing_lake(rest_catalog, s3):
    """A lake on a REST server that registers in the place of another table, as Polaris does."""
    with (
        running_proxy(rest_catalog.port, [registers_over]) as proxy,
        neve.open(rest_settings(proxy.uri, s3)) as lake,
    ):
        yield lake


def test_a_server_that_replaces_no_table_is_told_apart(rest_catalog, s3, tmp_path):
    with neve.open(rest_settings(rest_catalog.uri, s3)) as lake:
        move = make_move(lake, tmp_path)
        move.source.append()
        move.run()
        move.source.append()
        before = move.read()
        with pytest.raises(UnsupportedError, match="registers no table in the place of another"):
            move.run(REPLACE)
        assert move.read() == before


@pytest.mark.parametrize("lake", ["sqlite", "postgres", "rest"], indirect=True)
def test_of_two_registrations_at_once_one_makes_the_table(move):
    move.source.append()
    version = leave_behind(move.source.metadata(), "orders").metadata
    versions = [write_metadata(move.lake.catalog().properties, version) for _ in range(4)]
    begin = threading.Barrier(4)

    def run(moved):
        begin.wait()
        return register(move.lake, move.target, moved, REFUSE, None).outcome

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(run, versions))
    assert outcomes.count(Outcome.REGISTERED) == 1
    assert outcomes.count(Outcome.ALREADY_THERE) == 3


def _set_at_target(move, tag, snapshot_id):
    """Make a tag and a property at the target."""

    def change(document):
        document["refs"][tag] = {"snapshot-id": snapshot_id, "type": "tag"}
        document["properties"]["own"] = "target"

    commit_at_target(move, change)


@pytest.mark.soak
def test_spark_reads_and_writes_a_version_3_table_that_was_extended_on_rest(rest_lake, tmp_path):
    """The files are the source's own: only the registration is tried."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    rest_lake.sql(f"CREATE NAMESPACE {name}")
    rest_lake.sql(
        f"CREATE TABLE {name}.source (id BIGINT) TBLPROPERTIES ('format-version' = '3', "
        "'write.delete.mode' = 'merge-on-read')"
    )
    source, target = (TableRef("lake", (name, each)) for each in ("source", "target"))

    def move(existing):
        version = leave_behind(read_target(rest_lake, source), "source").metadata
        moved = write_metadata(rest_lake.catalog().properties, version)
        register(rest_lake, target, moved, existing, read_target(rest_lake, target))

    def rows(table):
        columns = "id, _row_id, _last_updated_sequence_number"
        return sorted(map(tuple, rest_lake.sql(f"SELECT {columns} FROM {name}.{table}").collect()))

    rest_lake.sql(f"INSERT INTO {name}.source SELECT id FROM range(10)")
    move(REFUSE)
    rest_lake.sql(f"INSERT INTO {name}.source SELECT id + 10 FROM range(10)")
    rest_lake.sql(f"DELETE FROM {name}.source WHERE id = 3")
    rest_lake.sql(f"ALTER TABLE {name}.source ADD COLUMN day INT")
    rest_lake.sql(f"ALTER TABLE {name}.source ADD PARTITION FIELD day")
    rest_lake.sql(f"INSERT INTO {name}.source SELECT id + 20, 1 FROM range(10)")
    rest_lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}.source', retain_last => 1, "
        "older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    move(EXTEND)
    assert rows("target") == rows("source")
    assert len(rows("target")) == 29
    rest_lake.sql(f"INSERT INTO {name}.target SELECT id + 30, 2 FROM range(5)")
    row_ids = [row_id for _, row_id, _ in rows("target")]
    assert len(set(row_ids)) == 34
