"""The methods of an open lake, on an embedded catalog without Spark."""

import pyarrow as pa
import pytest

import neve
from neve import api
from neve.api import OpenLake, Outcome
from neve.config import Settings
from neve.errors import NotFoundError
from neve.lake.staging import StagingTable
from neve.publish.publisher import Publisher
from neve.publish.ranges import Range
from tests.support.lakes import sqlite_settings
from tests.support.publishing import KnownStreams

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


def hold(lake: OpenLake, batch: str, number: int) -> None:
    """Hold a batch of one row back, as an audit does."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    table = lake.catalog().load_table("otel.logs")
    rows = pa.table({"id": [number]}, SCHEMA)
    files = list(_dataframe_to_data_files(table.metadata, rows, table.io))
    publisher = Publisher(StagingTable(lake.profile, table), KnownStreams("logs/a"))
    staged = publisher.stage(batch, files, {"logs/a": Range(number, number)})
    assert staged is not None
    publisher.hold(staged)


def test_held_batches_are_listed_shown_published_and_discarded(lake):
    lake.catalog().create_namespace("otel")
    lake.catalog().create_table("otel.logs", SCHEMA)
    hold(lake, "first", 1)
    hold(lake, "second", 2)
    assert [(one.batch_id, one.state) for one in lake.staged()] == [
        ("first", "held"),
        ("second", "held"),
    ]
    assert lake.staged_rows("otel.logs", "first").to_pylist() == [{"id": 1}]
    assert lake.publish_staged("otel.logs", "first") is Outcome.PUBLISHED
    lake.discard_staged("otel.logs", "second")
    assert lake.staged("otel.logs") == []
    rows = lake.catalog().load_table("otel.logs").scan().to_arrow()
    assert rows["id"].to_pylist() == [1]
    for give_up in (lake.publish_staged, lake.discard_staged):
        with pytest.raises(NotFoundError, match="holds no batch second"):
            give_up("otel.logs", "second")


def test_consolidating_an_empty_buffer_reports_nothing_and_starts_no_spark(lake, monkeypatch):
    monkeypatch.setattr(OpenLake, "spark", property(lambda _: pytest.fail("Spark was started")))
    report = lake.consolidate()
    assert (report.results, report.failed) == ([], False)


def test_tables_and_table_describe_what_the_catalog_has(lake):
    lake.catalog().create_namespace("shop")
    lake.catalog().create_table("shop.orders", SCHEMA).append(pa.table({"id": [1, 2]}, SCHEMA))
    (summary,) = lake.tables("shop")
    table = lake.table("shop.orders")
    assert (summary.table, summary.rows) == (table.table, table.rows) == ("shop.orders", 2)
    assert [(one.name, one.type) for one in table.columns] == [("id", "long")]


def test_every_mirror_gets_its_turn_before_a_failure_is_raised(tmp_path):
    settings = sqlite_settings(tmp_path)
    mirror = {"namespace": "shop", "primary_keys": "id", "sequence_column": "lsn"}
    tables = [
        {**mirror, "changelog_table": f"{name}_changes", "mirror_table": name}
        for name in ("first", "second")
    ]
    document = settings.model_dump(include={"catalog", "spark"}) | {"merge": {"tables": tables}}
    from neve.merge.once import merge_once, preview_once

    with neve.open(Settings.model_validate(document)) as lake:
        lake.catalog().create_namespace("shop")
        for turns in (merge_once(lake, ()), preview_once(lake, ())):
            assert [turn.table for turn in turns] == ["shop.first", "shop.second"]
            assert all(isinstance(turn.error, NotFoundError) for turn in turns)
        for call in (lake.merge, lake.preview_merge):
            with pytest.raises(NotFoundError, match="first_changes"):
                call()


def test_an_internal_error_of_one_mirror_stops_no_other(tmp_path, monkeypatch):
    settings = sqlite_settings(tmp_path)
    mirror = {"namespace": "shop", "primary_keys": "id", "sequence_column": "lsn"}
    tables = [
        {**mirror, "changelog_table": f"{name}_changes", "mirror_table": name}
        for name in ("first", "second")
    ]
    merging = {"tables": tables, "parallel_tables": 1}
    document = settings.model_dump(include={"catalog", "spark"}) | {"merge": merging}
    from neve.merge import merger
    from neve.merge.once import merge_once, preview_once
    from neve.observe import sentry

    def look(lake, spec, **known):
        raise ValueError("a cell's value") if spec.name == "shop.first" else NotFoundError("none")

    captured = []
    monkeypatch.setattr(merger, "look", look)
    monkeypatch.setattr(sentry, "capture", lambda error, *where: captured.append(where))
    with neve.open(Settings.model_validate(document)) as lake:
        for turns in (merge_once(lake, ()), preview_once(lake, ())):
            first, second = (turn.error for turn in turns)
            assert first.message == "shop.first: internal error: ValueError"
            assert isinstance(first.__cause__, ValueError)
            assert isinstance(second, NotFoundError)
    assert captured == [("merge", "shop.first")] * 2


def test_progress_goes_where_the_caller_wants_it(tmp_path):
    lines: list[str] = []
    with neve.open(sqlite_settings(tmp_path), progress=lines.append) as lake:
        lake.progress("a step")
    assert lines == ["a step"]


def test_every_exported_name_exists():
    assert [name for name in api.__all__ if not hasattr(api, name)] == []
