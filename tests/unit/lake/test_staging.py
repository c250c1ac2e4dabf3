"""What commits leave on the disk, counted as files: on an embedded catalog, without Spark."""

import threading

import pyarrow as pa
import pytest

import neve
from neve.errors import ConflictError, NotFoundError, UnknownOutcomeError
from neve.lake.create import FEW_METADATA_FILES
from neve.lake.data_files import write_data_files
from neve.lake.staging import Change, StagingTable
from tests.support.lakes import sqlite_settings
from tests.support.publishing import Lossy

KEPT = int(FEW_METADATA_FILES["write.metadata.previous-versions-max"])


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("ns")
        schema = pa.schema([("id", pa.int64())])
        lake.catalog().create_table("ns.t", schema, properties=dict(FEW_METADATA_FILES))
        yield lake


def staging(lake):
    return StagingTable(lake.profile, lake.catalog().load_table("ns.t"))


def metadata_files(tmp_path):
    directory = tmp_path / "warehouse" / "ns" / "t" / "metadata"
    return {file.as_uri() for file in directory.glob("*.metadata.json")}


def commit(table):
    table.apply(Change(base_main=table.main_id, set_properties={"number": str(table.main_id)}))


def check_files(lake, tmp_path):
    """The current metadata file, those of its log, and no other."""
    table = lake.catalog().load_table("ns.t")
    logged = {entry.metadata_file for entry in table.metadata.metadata_log}
    assert metadata_files(tmp_path) == {*logged, table.metadata_location}
    assert len(logged) <= KEPT


def test_sixty_commits_leave_only_the_metadata_files_of_the_log(lake, tmp_path):
    table = staging(lake)
    for _ in range(60):
        commit(table)
    assert len(metadata_files(tmp_path)) == KEPT + 1
    check_files(lake, tmp_path)


def test_metadata_files_stay_where_the_table_does_not_want_them_deleted(lake, tmp_path):
    with lake.catalog().load_table("ns.t").transaction() as transaction:
        transaction.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    table = staging(lake)
    for _ in range(KEPT + 5):
        commit(table)
    assert len(metadata_files(tmp_path)) == KEPT + 5 + 2


def test_commits_whose_answer_was_lost_leave_no_metadata_file_either(lake, tmp_path):
    table = staging(lake)
    for _ in range(KEPT + 1):
        commit(table)
    lossy = Lossy(table, ["lost after"] * 3)
    for _ in range(3):
        with pytest.raises(UnknownOutcomeError):
            commit(table)
        table.refresh()
    assert lossy.plan == []
    commit(table)
    check_files(lake, tmp_path)


def test_a_refused_commit_leaves_no_metadata_file(lake, tmp_path, monkeypatch):
    table, other = staging(lake), staging(lake)
    catalog = lake.catalog()
    swap = catalog.swap_metadata
    raced = threading.Event()

    def be_overtaken(*arguments):
        if not raced.is_set():
            raced.set()
            commit(other)
        swap(*arguments)

    monkeypatch.setattr(catalog, "swap_metadata", be_overtaken)
    with pytest.raises(ConflictError, match="another process"):
        commit(table)
    assert raced.is_set()
    # Of the table as it was made, and of the other's commit.
    assert len(metadata_files(tmp_path)) == 2
    check_files(lake, tmp_path)


def test_a_commit_counts_although_old_metadata_cannot_be_deleted(lake, tmp_path, caplog):
    table = staging(lake)
    for _ in range(KEPT + 1):
        commit(table)

    def fail(_location):
        raise RuntimeError("no such luck")

    table.io.delete = fail
    commit(table)
    assert "some metadata files are left" in caplog.text
    assert table.main_id == staging(lake).main_id


def test_a_table_that_was_dropped_is_told(lake):
    table = staging(lake)
    lake.catalog().drop_table("ns.t")
    with pytest.raises(NotFoundError, match=r"ns\.t does not exist"):
        table.refresh()


def test_replacing_all_files_is_one_commit_on_the_snapshot_that_was_seen(lake):
    rows = pa.table({"id": [1, 2]})
    lake.catalog().load_table("ns.t").append(rows)
    lake.catalog().load_table("ns.t").append(rows)
    table, late = staging(lake), staging(lake)
    files = write_data_files(table.metadata, table.io, pa.table({"id": [3]}))
    snapshot_id = table.replace(files, {"mark": "a"})
    assert (table.main_id, table.summary_of(snapshot_id)["mark"]) == (snapshot_id, "a")
    assert lake.catalog().load_table("ns.t").scan().to_arrow()["id"].to_pylist() == [3]
    with pytest.raises(ConflictError):
        late.replace((), {})
    table.replace((), {})
    stored = lake.catalog().load_table("ns.t")
    assert stored.scan().to_arrow().num_rows == 0
    assert stored.inspect.files().num_rows == 0
