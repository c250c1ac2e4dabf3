"""A table whose catalog entry was lost comes back from its newest metadata, and from no other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import neve
from neve.errors import (
    ConflictError,
    CorruptionError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from neve.lake.local_files import LocalFiles
from neve.lake.metadata_json import MetadataJson
from neve.lake.pyiceberg_catalogs import NeveSqlCatalog
from neve.upkeep.newest_metadata import newest_metadata
from tests.support.appending import Appender
from tests.support.lakes import sqlite_settings
from tests.support.power_cut import power_cut

HOUR = 3_600_000


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as opened:
        yield opened


def lose(lake, commits=4):
    """Drop the catalog's entry and leave all files; return the table's directory."""
    appender = Appender(lake)
    for number in range(commits):
        appender.append(number)
    directory = Path(urlsplit(appender.load().location()).path)
    lake.catalog().drop_table(("ns", "t"))
    return appender, directory


def newest_file(directory):
    return max((directory / "metadata").glob("*.metadata.json"))


def test_it_comes_back_as_it_was_and_says_what_no_snapshot_names(lake):
    appender, directory = lose(lake)
    (directory / "data" / "left.parquet").write_bytes(b"left")
    dry = lake.recover_table("ns.t", dry_run=True)
    assert (dry.outcome, dry.rows) == ("would be registered", 4)
    assert lake.tables() == []
    report = lake.recover_table("ns.t")
    assert (report.outcome, report.rows, report.snapshots) == ("registered", 4, 4)
    assert urlsplit(report.metadata_location).path == str(newest_file(directory))
    assert (report.unreferenced_files, report.unreferenced_bytes) == (1, 4)
    assert [each.path.rpartition("/")[2] for each in report.unreferenced] == ["left.parquet"]
    assert appender.ids() == Counter(range(4))


def test_it_is_found_in_a_warehouse_with_a_space(tmp_path):
    """The directory of the tables is `my%20lake`: paths are taken letter by letter."""
    settings = sqlite_settings(tmp_path, warehouse=str(tmp_path / "my lake"))
    with neve.open(settings) as lake:
        appender = Appender(lake)
        appender.append(1)
        assert lake.unregistered_tables() == []
        lake.catalog().drop_table(("ns", "t"))
        assert lake.unregistered_tables() == ["ns.t"]
        assert lake.recover_table("ns.t").outcome == "registered"
        assert appender.ids() == Counter([1])
        assert lake.unregistered_tables() == []


def test_nothing_is_ever_registered_over_a_table(lake):
    lose(lake)
    lake.recover_table("ns.t")
    again = lake.recover_table("ns.t")
    assert (again.outcome, again.unreferenced_files) == ("nothing is broken", 0)
    chosen = str(newest_file(Path(urlsplit(lake.catalog().load_table("ns.t").location()).path)))
    with pytest.raises(ConflictError, match=r"ns\.t is in the catalog"):
        lake.recover_table("ns.t", metadata_file=chosen)
    location = lake.catalog().load_table("ns.t").location()
    with pytest.raises(ConflictError, match=r"those of table ns\.t, which is in the catalog"):
        lake.recover_table("ns.other", location=location)


def make_unreadable(lake, name, how):
    """Give a table a column of a type that PyIceberg does not know, or damage its metadata."""
    file = Path(urlsplit(lake.catalog().load_table(name).metadata_location).path)
    content = json.loads(file.read_text())
    content["schemas"][0]["fields"][0]["type"] = "variant"
    file.write_text(json.dumps(content) if how == "variant" else "{")


@pytest.mark.parametrize("how", ["variant", "damaged"])
def test_nothing_is_registered_under_a_second_name_also_if_the_first_cannot_be_read(lake, how):
    appender = Appender(lake)
    for number in range(3):
        appender.append(number)
    location = appender.load().location()
    chosen = appender.load().metadata.metadata_log[-1].metadata_file
    lake.catalog().rename_table(("ns", "t"), ("ns", "renamed"))
    make_unreadable(lake, "ns.renamed", how)
    for options in ({"metadata_file": chosen}, {"location": location}):
        with pytest.raises((ConflictError, CorruptionError)) as refused:
            lake.recover_table("ns.t", **options)
        if options == {"metadata_file": chosen}:
            assert "those of table ns.renamed, which is in the catalog" in str(refused.value)
    assert [each.table for each in lake.tables()] == ["ns.renamed"]


def test_a_table_in_a_place_of_its_own_that_pyiceberg_cannot_read_is_not_lost(lake, tmp_path):
    catalog, schema = lake.catalog(), neve_schema()
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", schema, location=f"file://{tmp_path}/warehouse/ns/elsewhere")
    make_unreadable(lake, "ns.t", "variant")
    assert lake.unregistered_tables() == []


def test_a_table_that_was_set_back_and_written_again_is_for_a_person_to_choose(lake):
    """It was registered from an older file: those that came after it have higher numbers."""
    _, directory = lose(lake)
    files = sorted((directory / "metadata").glob("*.metadata.json"))
    for file in files:
        content = json.loads(file.read_text())
        file.write_text(
            json.dumps({**content, "last-updated-ms": content["last-updated-ms"] - HOUR})
        )
    lake.recover_table("ns.t", metadata_file=f"file://{files[1]}")
    Appender(lake).append(9)
    lake.catalog().drop_table(("ns", "t"))
    with pytest.raises(ConflictError, match="set back to an older version once"):
        lake.recover_table("ns.t", dry_run=True)


def test_another_that_registers_at_the_same_moment_wins(lake, monkeypatch):
    _, directory = lose(lake)
    insert = NeveSqlCatalog.insert_metadata

    def be_late(self, identifier, location):
        schema = json.loads(newest_file(directory).read_text())
        assert schema["table-uuid"]
        self.create_table(identifier, neve_schema(), location=f"{directory}2")
        return insert(self, identifier, location)

    monkeypatch.setattr(NeveSqlCatalog, "insert_metadata", be_late)
    with pytest.raises(ConflictError):
        lake.recover_table("ns.t")
    assert lake.catalog().load_table("ns.t").location().endswith("t2")


def neve_schema():
    import pyarrow as pa

    return pa.schema([pa.field("id", pa.int64())])


def test_a_death_after_the_registration_and_a_lost_answer_leave_a_table(lake, monkeypatch):
    appender, _ = lose(lake)
    with power_cut("recover.table_registered"):
        lake.recover_table("ns.t")
    assert appender.ids() == Counter(range(4))
    lake.catalog().drop_table(("ns", "t"))
    insert = NeveSqlCatalog.insert_metadata

    def lose_answer(self, *arguments):
        insert(self, *arguments)
        raise UnknownOutcomeError("the answer was lost")

    monkeypatch.setattr(NeveSqlCatalog, "insert_metadata", lose_answer)
    assert lake.recover_table("ns.t").outcome == "registered"


def test_a_damaged_newest_file_is_named_and_another_may_be_chosen(lake):
    _, directory = lose(lake)
    files = sorted((directory / "metadata").glob("*.metadata.json"))
    files[-1].write_text("{")
    with pytest.raises(CorruptionError, match=files[-1].name):
        lake.recover_table("ns.t")
    report = lake.recover_table("ns.t", metadata_file=str(files[-2]))
    assert (report.rows, report.reason) == (3, "it was chosen")


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("{")])
def test_an_entry_whose_file_cannot_be_read_goes_back_to_a_version_that_a_person_chooses(
    lake, damage
):
    appender = Appender(lake)
    for number in range(4):
        appender.append(number)
    files = sorted(Path(urlsplit(appender.load().location()).path, "metadata").glob("*.json"))
    damage(files[-1])
    assert lake.health("ns.t")[0].score == 0
    with pytest.raises(CorruptionError, match=f"{files[-1].name}.*cannot be read") as refused:
        lake.recover_table("ns.t")
    assert refused.value.hint.endswith(f"--metadata {files[-2]}")
    chosen = str(files[-2])
    dry = lake.recover_table("ns.t", metadata_file=chosen, dry_run=True)
    assert (dry.outcome, dry.rows) == ("would be registered", 3)
    assert lake.health("ns.t")[0].score == 0
    report = lake.recover_table("ns.t", metadata_file=chosen)
    assert (report.outcome, report.rows) == ("registered", 3)
    # What the lost commit has written is in no snapshot any more.
    assert report.unreferenced_files > 0
    assert appender.ids() == Counter(range(3))


def test_an_entry_whose_store_does_not_answer_is_not_replaced(lake, monkeypatch):
    appender = Appender(lake)
    for number in range(2):
        appender.append(number)
    files = sorted(Path(urlsplit(appender.load().location()).path, "metadata").glob("*.json"))

    def silent(*_arguments):
        raise StorageError("the store does not answer")

    monkeypatch.setattr("neve.lake.registering.read_database_table", silent)
    get, newest = LocalFiles.get, str(files[-1])

    def get_others(store, key, most_bytes):
        return silent() if key == newest else get(store, key, most_bytes)

    monkeypatch.setattr(LocalFiles, "get", get_others)
    for arguments in ({}, {"roll_back": True}, {"metadata_file": str(files[-2])}):
        with pytest.raises(StorageError, match="does not answer"):
            lake.recover_table("ns.t", **arguments)
    monkeypatch.undo()
    assert appender.ids() == Counter(range(2))


def test_a_location_without_metadata_is_told(lake, tmp_path):
    with pytest.raises(NotFoundError, match="has no metadata file"):
        lake.recover_table("ns.t", location=str(tmp_path))


def test_a_misspelled_name_is_told_with_the_names_that_are_near(lake):
    Appender(lake)
    message = "table ns.tt does not exist in catalog lake, nor was it lost: .* has no metadata file"
    with pytest.raises(NotFoundError, match=message) as caught:
        lake.recover_table("ns.tt", dry_run=True)
    assert caught.value.hint.endswith("; did you mean ns.t?")


def test_a_name_without_its_namespace_is_no_lost_table(lake):
    Appender(lake)
    with pytest.raises(NotFoundError, match="table t does not exist") as caught:
        lake.recover_table("t", dry_run=True)
    assert caught.value.hint == "did you mean ns.t?"


def document(number, uuid="u", *log, name="a", seconds=0, at="/t"):
    path = f"/t/metadata/{number:05}-{name}.metadata.json"
    files = [{"metadata-file": f"file:///t/metadata/{each}.metadata.json"} for each in log]
    content = {"table-uuid": uuid, "location": at, "metadata-log": files}
    content["last-updated-ms"] = 1000 * seconds
    return MetadataJson(path, content)


@pytest.mark.parametrize(
    ("documents", "newest"),
    [
        ([document(9), document(10, "u", "00009-a")], "00010-a"),
        # A refused attempt is older than what followed it, whatever its name.
        ([document(9, name="z"), document(9), document(10, "u", "00009-a")], "00010-a"),
        # The log names it: it was replaced, though its number is higher.
        ([document(11), document(10, "u", "00011-a")], "00010-a"),
        # Of a writer whose clock is ahead.
        ([document(9, name="z", seconds=60), document(10, "u", "00009-a")], "00010-a"),
    ],
)
def test_the_newest_is_told_by_numbers_and_logs(documents, newest):
    for some in (documents, documents[::-1]):
        assert newest in newest_metadata(iter(some))[0]


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([document(9), document(9, name="b")], "two attempts of one commit"),
        ([document(9), document(10, "v")], "metadata of 2 tables"),
        ([document(9, seconds=61), document(10)], "00009-a.metadata.json was written later"),
        # Rewritten where it was copied to: the copied file names files of the place before.
        ([document(0), document(10, at="/before")], "lies at /before; 00000-a.* says at /t"),
    ],
)
def test_where_nothing_says_which_is_the_newest_a_person_decides(documents, said):
    with pytest.raises(ConflictError, match=said):
        newest_metadata(documents)
