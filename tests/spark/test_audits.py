"""Audits on a real staged snapshot: what passes, what is held, what is set aside."""

from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve.buffer.buffer import open_buffer
from neve.config import Settings
from neve.consolidate.check import audit_checks
from neve.errors import ConfigError
from neve.lake.create import FEW_METADATA_FILES
from neve.lake.staging import StagingTable
from neve.publish.staged_batches import discard, release
from neve.publish.staged_list import list_staged
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import SPARK
from tests.support.power_cut import power_cut
from tests.support.requests import buffered

NAMED = "tests.spark.test_audits:has_many_rows"


def has_many_rows(rows):
    """A user's own audit."""
    return rows.count() > 3


def settings(directory, *audits, table="otel.logs", promote=(), **consolidate):
    return Settings.model_validate(
        {
            "catalog": {
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": f"{directory}/warehouse",
            },
            "spark": SPARK,
            "audits": {table: audits},
            "telemetry": {"promote": promote},
            "consolidate": consolidate,
        }
    )


@pytest.fixture
def bench(tmp_path, embedded_lake):
    """Open lakes with audits on the JVM that the embedded lake keeps running."""
    opened = []

    def make(*audits, promote=(), **consolidate):
        lake = neve.open(settings(tmp_path, *audits, promote=promote, **consolidate))
        opened.append(lake)
        return Bench(lake, tmp_path)

    yield make
    for lake in opened:
        lake.close()


def audit(check, on_failure="block", **more):
    return {"name": f"a_{check}", "check": check, "on_failure": on_failure, **more}


def test_all_checks_count_in_one_pass_over_the_staged_rows_only(bench):
    first = bench()
    first.send(Signal.LOGS, "before", records=5)
    first.run()
    second = bench(
        audit("not_null", "warn", column="body"),
        audit("not_null", "warn", columns=["service_name", "trace_id"]),
        audit("unique", "warn", column="body"),
        audit("unique", "warn", column="body_kind"),
        audit("accepted_values", "warn", column="body", values=["x 0"]),
        audit("between", "warn", column="flags", min=0, max=5),
        audit("row_count", "warn", min=2, max=3),
        audit("row_count", "warn", min=4),
        audit("freshness", "warn", column="received_at", max_age_seconds=3600),
        audit("freshness", "warn", column="received_at", max_age_seconds=0.001),
        audit("expression", "warn", expression="body like '% 0'", min_ratio=0.5),
        audit("expression", "warn", expression="body like '% 0'", min_ratio=0.4),
        audit("function", "warn", function=NAMED),
    )
    second.send(Signal.LOGS, "x", records=2)
    report = second.run()
    found = [(result.passed, result.failing, result.total) for _, result in report.audits]
    assert [passed for passed, _, _ in found] == [
        True,
        False,
        True,
        False,
        False,
        True,
        True,
        False,
        True,
        False,
        True,
        True,
        False,
    ]
    assert {total for _, _, total in found} == {2}
    assert second.names("logs").total() == 7
    assert not report.failed


def test_a_function_of_the_users_alone_knows_the_number_of_rows_too(bench):
    own = bench(audit("function", "warn", function=NAMED))
    own.send(Signal.LOGS, "x", records=3)
    own.send(Signal.LOGS, "y", records=2)
    ((_, result),) = own.run().audits
    assert (result.passed, result.failing, result.total) == (True, 0, 5)


def test_a_blocked_batch_is_held_readers_see_nothing_and_the_next_goes_on(bench):
    held = bench(audit("accepted_values", column="body", values=["good 0", "good 1"]))
    held.send(Signal.LOGS, "bad")
    report = held.run()
    assert report.failed
    assert held.names("logs").total() == 0
    held.send(Signal.LOGS, "good")
    held.run()
    assert held.names("logs") == Counter(["good 0", "good 1"])
    (batch,) = list_staged(held.lake)
    assert (batch.state, batch.rows) == ("held", 2)
    release(held.lake, "otel.logs", batch.batch_id)
    assert held.names("logs").total() == 4
    assert list_staged(held.lake) == []


def test_a_table_that_holds_enough_stops_alone_and_loses_nothing(bench, caplog):
    full = bench(audit("row_count", max=1), max_held=1)
    full.send(Signal.LOGS, "first")
    report = full.run()
    assert report.held_batches["otel.logs"] == 1
    assert "otel.logs: 1 batches are held, and no more may be" in caplog.text
    assert "neve staged publish|discard otel.logs --all" in caplog.text
    full.send(Signal.LOGS, "second")
    full.send(Signal.TRACES, "span")
    report = full.run()
    assert report.failed
    assert report.trouble.startswith("otel.logs: a batch failed its audits")
    assert full.names("traces").total() == 2
    assert full.names("logs").total() == 0
    (held,) = [batch for batch in list_staged(full.lake) if batch.state == "held"]
    discard(full.lake, "otel.logs", held.batch_id)
    full.run()
    (held,) = list_staged(full.lake)
    release(full.lake, "otel.logs", held.batch_id)
    assert full.names("logs") == Counter(["second 0", "second 1"])


def test_a_discarded_batch_is_never_published(bench):
    held = bench(audit("row_count", min=100))
    held.send(Signal.LOGS, "bad")
    held.run()
    (batch,) = list_staged(held.lake)
    discard(held.lake, "otel.logs", batch.batch_id)
    assert list_staged(held.lake) == []
    assert held.run().results == []
    assert held.names("logs").total() == 0


def test_failing_rows_are_set_aside_once_and_the_rest_is_published(bench):
    aside = bench(audit("expression", "set_aside", expression="body <> 'x 1'"))
    aside.send(Signal.LOGS, "x", records=3)
    report = aside.run()
    assert report.set_aside == 1
    assert aside.names("logs") == Counter(["x 0", "x 2"])
    rejected = aside.lake.catalog().load_table("otel.logs_rejected").scan().to_arrow()
    assert rejected["body"].to_pylist() == ["x 1"]
    assert rejected["rejected_by"].to_pylist() == [["a_expression"]]
    for table in ("otel.logs", "otel.logs_rejected", "neve.batches"):
        assert FEW_METADATA_FILES.items() <= aside.lake.table(table).properties.items()


@pytest.mark.parametrize("changing", ["current_timestamp()", "rand()"])
def test_an_audit_that_answers_differently_each_time_loses_no_row(bench, changing):
    """Its clock and its dice decide once for each row, and the report tells of that decision."""
    aside = bench(audit("expression", "set_aside", expression=f"hash(body, {changing}) % 2 = 0"))
    aside.send(Signal.LOGS, "x", records=300)
    report = aside.run()
    published = aside.names("logs")
    rejected = aside.lake.catalog().load_table("otel.logs_rejected").scan().to_arrow()
    assert published + Counter(rejected["body"].to_pylist()) == Counter(
        f"x {number}" for number in range(300)
    )
    ((_, result),) = report.audits
    assert 0 < report.set_aside == result.failing == len(rejected) < 300


def test_a_batch_is_audited_alone_though_the_snapshot_before_it_has_expired(bench):
    """PyIceberg's expiry clears its parent, and it looks like the first of its table."""
    aside = bench(audit("expression", "set_aside", expression="body <> 'x 1'"))
    aside.send(Signal.LOGS, "a")
    aside.run()
    before = aside.lake.catalog().load_table("otel.logs").current_snapshot().snapshot_id
    aside.send(Signal.LOGS, "x", records=3)
    with power_cut("publish.staged"):
        aside.run()
    aside.lake.sql("INSERT INTO otel.logs SELECT * FROM otel.logs WHERE body = 'a 0'")
    table = aside.lake.catalog().load_table("otel.logs")
    table.maintenance.expire_snapshots().by_id(before).commit()
    assert [staged.parent_id for staged in aside.staged("logs")] == [None]
    report = aside.run()
    assert report.failures == []
    assert [(result.failing, result.total) for _, result in report.audits] == [(1, 3)]
    assert aside.names("logs") == Counter({"a 0": 2, "a 1": 1, "x 0": 1, "x 2": 1})


def test_two_workers_with_other_cuts_set_each_row_aside_once(bench, monkeypatch):
    """The second worker takes two requests while the first sets rows of one of them aside."""
    entry = audit("expression", "set_aside", expression="body not like '% 1'")
    slow, quick = bench(entry), bench(entry)
    slow.spec = replace(slow.spec, lease_seconds=0, batch_bytes=1)
    quick.spec = replace(quick.spec, lease_seconds=0)
    slow.send(Signal.LOGS, "a")
    slow.send(Signal.LOGS, "b")
    stage, stagings, reports = StagingTable.stage, [], []

    def interrupted(table, *arguments):
        if table.name == "otel.logs":
            stagings.append(1)
            # The first stages the batch, the second its clean rows.
            if len(stagings) == 2:
                monkeypatch.setattr(StagingTable, "stage", stage)
                reports.append(quick.run())
        return stage(table, *arguments)

    monkeypatch.setattr(StagingTable, "stage", interrupted)
    reports.append(slow.run())
    assert slow.names("logs") == Counter(["a 0", "b 0"])
    rejected = slow.lake.catalog().load_table("otel.logs_rejected").scan().to_arrow()
    assert sorted(rejected["body"].to_pylist()) == ["a 1", "b 1"]
    assert sum(report.set_aside for report in reports) == 2


def test_promoted_columns_are_audited_and_set_aside_with_their_rows(bench):
    before = bench(audit("expression", "set_aside", expression="body <> 'old'"))
    send_numbered(before, "old", 1)
    before.run()
    entry = audit("between", "set_aside", column="n", max=5)
    after = bench(entry, promote=[{"attribute": "n", "type": "int"}])
    send_numbered(after, "good", 1)
    send_numbered(after, "bad", 9)
    assert after.run().set_aside == 1
    assert after.names("logs") == Counter(["good"])
    rejected = after.lake.catalog().load_table("otel.logs_rejected").scan().to_arrow()
    found = {row["body"]: (row["n"], row["rejected_by"]) for row in rejected.to_pylist()}
    assert found == {"old": (None, ["a_expression"]), "bad": (9, ["a_between"])}


def send_numbered(bench, body, number):
    request = Signal.LOGS.request()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.body.string_value = body
    record.attributes.add(key="n").value.int_value = number
    with open_buffer(bench.buffer, ["logs"]) as buffer:
        buffer.append("logs", buffered(request.SerializeToString())).durable.result(10)


@pytest.mark.parametrize(
    ("table", "entry", "said"),
    [
        ("otel.logs", audit("not_null", column="nope"), "nope, which the table does not have"),
        ("otel.lags", audit("not_null", column="body"), "no such telemetry table"),
    ],
)
def test_audits_of_what_does_not_exist_are_refused_before_anything_runs(
    tmp_path, table, entry, said
):
    opened = neve.open(settings(tmp_path, entry, table=table))
    with opened as lake, pytest.raises(ConfigError, match=said):
        Bench(lake, tmp_path).worker()


def raises(rows):
    """A user's own audit that is broken."""
    raise LookupError("of no interest")


def has_typo(rows):
    """A user's own audit with a column that does not exist."""
    return rows.where("boddy is null").count() == 0


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (audit("expression", expression="boddy <> 'x'"), "boddy"),
        (audit("function", function="tests.spark.test_audits:raises"), "raised LookupError"),
        (audit("function", function="tests.spark.test_audits:has_typo"), "a_function"),
    ],
)
def test_an_audit_that_cannot_run_stops_its_table_alone_and_loses_nothing(bench, entry, said):
    broken = bench(entry)
    broken.send(Signal.LOGS, "a")
    broken.send(Signal.TRACES, "t")
    report = broken.run()
    assert [result.table for result in report.failures] == ["otel.logs"]
    assert said in report.trouble
    assert broken.names("traces").total() == 2
    assert broken.names("logs").total() == 0
    mended = bench()
    mended.run()
    assert mended.names("logs") == Counter(["a 0", "a 1"])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (audit("expression", expression="boddy <> 'x'"), "audit a_expression: .*boddy"),
        (audit("expression", expression="body <>"), "audit a_expression: "),
        (audit("expression", expression="severity_number"), "audit a_expression: .*BOOLEAN"),
        (audit("between", column="attributes", min=1), "audit a_between: "),
        (audit("function", function="tests.nowhere:f"), "audit a_function: .*imported"),
    ],
)
def test_config_check_lets_spark_analyse_each_audit(tmp_path, embedded_lake, entry, said):
    configured = settings(tmp_path, audit("not_null", column="body"), entry)
    ((what, probe),) = audit_checks(configured, lambda: neve.open(configured))
    assert what == "audits otel.logs"
    with pytest.raises(ConfigError, match=f"(?s)^audits.otel.logs: {said}"):
        probe()


def test_config_check_knows_promoted_columns_and_those_of_a_live_table(bench):
    live = bench(promote=[{"attribute": "n", "type": "int"}])
    send_numbered(live, "a", 1)
    live.run()
    entries = [audit("expression", expression="n < m and body is not null")]
    after = bench(*entries, promote=[{"attribute": "m", "type": "int"}])
    ((_, probe),) = audit_checks(after.lake.settings, lambda: neve.open(after.lake.settings))
    assert probe() == "1 audits fit the table's columns"
