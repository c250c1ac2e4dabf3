"""Tables that gain columns while they live, without Spark; read by PyIceberg."""

import pytest

import neve
from neve.buffer.buffer import open_buffer
from neve.config import Settings
from neve.consolidate.check import check_tables
from neve.errors import ConfigError
from neve.signals import Signal
from neve.telemetry import schemas
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.requests import buffered

STATUS = {"attribute": "http.status", "type": "int"}
REGION = {"attribute": "cloud.region", "from": "resource", "column": "region"}


def settings(directory, *promote, **more):
    embedded = sqlite_settings(directory).model_dump(exclude={"telemetry", "audits"}, by_alias=True)
    return Settings.model_validate({**embedded, "telemetry": {"promote": promote}, **more})


@pytest.fixture
def bench(tmp_path):
    """Open the same lake with other promotions each time."""
    opened = []

    def make(*promote):
        lake = neve.open(settings(tmp_path, *promote))
        opened.append(lake)
        return Bench(lake, tmp_path)

    yield make
    for lake in opened:
        lake.close()


def send(bench, body, status):
    request = Signal.LOGS.request()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="cloud.region").value.string_value = "eu"
    record = resource.scope_logs.add().log_records.add()
    record.body.string_value = body
    record.attributes.add(key="http.status").value.string_value = status
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        stored = buffered(request.SerializeToString(), sender_name="shop")
        buffer.append("logs", stored).durable.result(10)


def read(bench, *columns):
    rows = bench.lake.catalog().load_table("otel.logs").scan().to_arrow()
    return sorted(rows.select(["body", *columns]).to_pylist(), key=lambda row: row["body"])


def test_a_live_table_gains_the_column_and_old_rows_read_null(bench):
    before = bench()
    send(before, "a", "200")
    before.run()
    after = bench(STATUS, REGION)
    send(after, "b", "404")
    report = after.run()
    assert read(after, "http_status", "region") == [
        {"body": "a", "http_status": None, "region": None},
        {"body": "b", "http_status": 404, "region": "eu"},
    ]
    assert report.unfit_values == 0


def test_a_value_that_does_not_fit_is_counted_and_stays_in_the_map(bench):
    live = bench(STATUS)
    send(live, "a", "teapot")
    report = live.run()
    assert report.unfit_values == 1
    assert not report.failed
    (row,) = read(live, "http_status", "attributes")
    assert row["http_status"] is None
    assert dict(row["attributes"]) == {"http.status": "teapot"}


def test_a_promotion_that_is_gone_leaves_its_column_and_fills_it_no_more(bench):
    first = bench(STATUS)
    send(first, "a", "200")
    first.run()
    second = bench()
    send(second, "b", "200")
    second.run()
    assert [row["http_status"] for row in read(second, "http_status")] == [200, None]


def test_a_column_that_changes_its_type_is_refused_and_nothing_is_written(bench):
    first = bench(STATUS)
    send(first, "a", "200")
    first.run()
    second = bench({**STATUS, "type": "bool"})
    send(second, "b", "200")
    assert "http_status is long" in second.run().trouble
    assert second.waiting_segments() > 0


@pytest.mark.parametrize(("column", "value"), [("event_name", ""), ("sender", "shop")])
def test_a_new_version_that_knows_more_columns_adds_them(bench, monkeypatch, column, value):
    known = schemas.SCHEMAS["logs"]
    without = known.remove(known.get_field_index(column))
    older = bench()
    with monkeypatch.context() as patch:
        patch.setattr("neve.publish.telemetry_tables.SCHEMAS", {**schemas.SCHEMAS, "logs": without})
        send(older, "a", "200")
        older.run()
    table = older.lake.catalog().load_table("otel.logs")
    assert column not in table.schema().column_names
    newer = bench()
    send(newer, "b", "200")
    newer.run()
    assert read(newer, column) == [{"body": "a", column: None}, {"body": "b", column: value}]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"attribute": "Body"}, "attribute Body would become the column body, which otel.logs has"),
        ({"attribute": "x", "column": "quantiles"}, r"quantiles, which otel\.metrics_summary has"),
        ({"attribute": "batch.id"}, r"batch_id, which otel\.logs_rejected has"),
    ],
)
def test_a_column_that_a_table_has_already_is_refused_before_anything_runs(bench, entry, said):
    with pytest.raises(ConfigError, match=said):
        bench(entry).worker()


def test_audits_may_name_promoted_columns(tmp_path):
    audits = {"otel.logs": [{"name": "a", "check": "not_null", "column": "http_status"}]}
    check_tables(settings(tmp_path, STATUS, audits=audits))
    with pytest.raises(ConfigError, match="http_status, which the table does not have"):
        check_tables(settings(tmp_path, audits=audits))
