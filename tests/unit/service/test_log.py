"""What a service prints: a line for each event, as text or JSON, without secrets, or nothing."""

import io
import json
import logging
import sys

import pytest

from neve.consolidate.report import Report, TableResult
from neve.errors import CatalogError
from neve.masking import HIDDEN, SecretMask
from neve.merge.report import Counts, TableReport
from neve.observe.json_log import JsonFormatter
from neve.service import log
from neve.service.speech import NoteSpeaker, say_consolidated, say_merged

SECRET = 'a"b\\secret-7'
HELD = TableResult("b1", "otel.logs", "held", 1200, 1, 10, 1.25, lag_seconds=3.5)


@pytest.fixture(params=[log.ServiceFormatter, JsonFormatter])
def lines(request, monkeypatch):
    """Return what was printed; as objects if it is JSON."""
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    names = ("", "neve", *log.SPOKEN)
    before = [(logging.getLogger(name).handlers, logging.getLogger(name).level) for name in names]
    log.configure(0, request.param(SecretMask({SECRET})))
    log.speak()

    def read():
        text = printed.getvalue().splitlines()
        return [json.loads(line) for line in text] if read.is_json else text

    read.is_json = request.param is JsonFormatter
    yield read
    for name, (handlers, level) in zip(names, before, strict=True):
        logging.getLogger(name).handlers = handlers
        logging.getLogger(name).setLevel(level)


def test_each_batch_has_a_line_and_a_held_one_the_next_command(lines):
    published = TableResult("b2", "otel.traces", "published", 7, 1, 10, 0.5, lag_seconds=2.04)
    failed = TableResult("b3", "otel.metrics_sum", "failed", 0, 0, 0, 0.1, "the disk is full")
    say_consolidated(Report(results=[HELD, published, failed]))
    held, told = lines()
    command = "neve staged show otel.logs b1"
    if not lines.is_json:
        assert held.endswith(
            f"Z WARNING otel.logs: 1,200 rows are held back; look at them with: {command}"
        )
        assert told.endswith("Z otel.traces: 7 rows published in 0.5 s, lag 2.0 s")
        return
    assert (held["event"], held["level"], held["command"]) == ("batch_held", "warning", command)
    assert told["event"] == "batch_published"
    assert (told["table"], told["rows"], told["seconds"], told["lag_seconds"]) == (
        "otel.traces",
        7,
        0.5,
        2.04,
    )
    assert told["time"].endswith("Z")


def test_idle_looks_and_turns_say_nothing(lines):
    say_consolidated(Report(held_batches={"otel.logs": 0}))
    NoteSpeaker()(TableReport("shop.a"))
    assert lines() == []


def test_each_merge_has_a_line_with_its_lag_and_a_note_is_said_once(lines):
    report = TableReport("shop.a", lag_seconds=60.0)
    say_merged(report.add(Counts(scanned=1500, upserted=1000, deleted=2), 1.5))
    report.note("shop.a: columns added: x")
    speaker = NoteSpeaker()
    speaker(report)
    speaker(report)
    merged, noted = lines()
    if lines.is_json:
        assert (merged["rows_written"], merged["rows_deleted"]) == (1000, 2)
        assert (merged["seconds"], merged["lag_seconds"]) == (1.5, 61.5)
        assert noted["table"] == "shop.a"
    else:
        assert merged.endswith(
            "Z shop.a: batch 1, 1,500 events: 1,000 rows written, 2 deleted in 1.5 s, lag 61.5 s"
        )


def test_warnings_of_other_rooms_are_lines_as_well_with_hint_and_without_secrets(lines):
    error = CatalogError(f"down: {SECRET}, postgresql://u:pw@h", hint="start it")
    logging.getLogger("neve.lake.x").warning("failed: %s", error)
    logging.getLogger("neve.lake.x").info("not asked for")
    log.say("x", "y", note=SECRET)
    warned, said = lines()
    expected = f"failed: down: {HIDDEN}, postgresql://u:{HIDDEN}@h (start it)"
    if lines.is_json:
        assert (warned["message"], warned["logger"]) == (expected, "neve.lake.x")
        assert said["note"] == HIDDEN
    else:
        assert warned.endswith(f"Z WARNING {expected}")


def test_a_traceback_is_masked_and_in_json_within_its_line(lines):
    logging.getLogger("neve.lake.x").error("broke", exc_info=RuntimeError(SECRET))
    printed = lines()
    assert SECRET not in str(printed).replace('\\"', '"').replace("\\\\", "\\")
    if lines.is_json:
        (line,) = printed
        assert line["exception"] == f"RuntimeError: {HIDDEN}"
