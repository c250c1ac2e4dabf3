"""Two deployments with a buffer each feed the same tables: each row is stored once."""

from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve import failpoints
from neve.consolidate.replay import replay_table
from neve.publish.publisher import Publisher
from neve.publish.ranges import read_marks
from neve.publish.staged_list import list_staged
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings


@pytest.fixture
def benches(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path / "a"), Bench(lake, tmp_path / "b")


def test_a_worker_cut_after_its_publish_finds_its_marks_again(benches):
    ours, theirs = benches
    theirs.send(Signal.LOGS, "theirs")
    with pytest.raises(failpoints.PowerCut), failpoints.armed("consolidate.published"):
        theirs.run()
    ours.send(Signal.LOGS, "ours")
    ours.run()
    theirs.run()
    assert ours.names("logs") == Counter(["ours 0", "ours 1", "theirs 0", "theirs 1"])
    assert theirs.waiting_segments() == 0


def test_rows_are_stored_once_while_another_table_of_the_signal_keeps_failing(benches, monkeypatch):
    ours, theirs = benches
    stage = Publisher.stage
    is_theirs = True

    def fail_theirs(publisher, *arguments):
        if is_theirs and publisher.table.name == "otel.metrics_sum":
            raise KeyError("it fails")
        return stage(publisher, *arguments)

    monkeypatch.setattr(Publisher, "stage", fail_theirs)
    theirs.send_gauge_and_sum("theirs")
    for number in range(3):
        is_theirs = True
        assert theirs.run().failed
        is_theirs = False
        ours.send_gauge_and_sum(f"ours {number}")
        ours.run()
    theirs.run()
    expected = Counter(["theirs", *(f"ours {number}" for number in range(3))])
    assert ours.names("metrics_gauge") == ours.names("metrics_sum") == expected


def test_the_staged_batch_of_a_buffer_that_is_lost_stays(benches):
    ours, theirs = benches
    theirs.send(Signal.LOGS, "theirs")
    with pytest.raises(failpoints.PowerCut), failpoints.armed("publish.staged"):
        theirs.run()
    for name in "ab":
        ours.send(Signal.LOGS, name)
        ours.run()
    (left,) = list_staged(ours.lake)
    assert (left.state, left.rows) == ("staged", 2)
    theirs.run()
    assert ours.names("logs")["theirs 0"] == 1
    assert list_staged(ours.lake) == []


def test_a_replay_leaves_what_a_replay_of_the_other_buffer_has_staged(benches):
    for bench in benches:
        bench.buffer = replace(bench.buffer, retain_seconds=3600)
        bench.spec = replace(bench.spec, buffer=bench.buffer)
    ours, theirs = benches
    ours.send(Signal.LOGS, "ours")
    theirs.send(Signal.LOGS, "theirs")
    ours.run()
    theirs.run()
    ours.lake.catalog().drop_table("otel.logs")
    with pytest.raises(failpoints.PowerCut), failpoints.armed("publish.staged"):
        replay_table(theirs.worker(), "otel.logs")
    replay_table(ours.worker(), "otel.logs")
    (left,) = list_staged(ours.lake)
    assert (left.state, left.rows) == ("staged", 2)
    assert replay_table(theirs.worker(), "otel.logs").rows == 2
    assert ours.names("logs") == Counter(["ours 0", "ours 1", "theirs 0", "theirs 1"])
    assert list_staged(ours.lake) == []


def test_marks_and_drop_notes_go_with_the_streams_they_are_of(benches):
    ours, theirs = benches
    for bench in benches:
        bench.buffer = replace(bench.buffer, dedup_seconds=0)
        bench.spec = replace(bench.spec, buffer=bench.buffer)
        bench.send(Signal.LOGS, "a")
        bench.run()
    # Both streams are dropped, and only the buffer that they were in says so.
    notes = [bench.worker().reader.dropped_streams("logs") for bench in benches]
    assert [len(streams) for streams in notes] == [1, 1]
    assert marked(ours) == {*notes[0], *notes[1]}
    ours.send(Signal.LOGS, "b")
    ours.run()
    assert notes[0][0] not in marked(ours)
    assert notes[1][0] in marked(ours)
    assert notes[0][0] not in ours.worker().reader.dropped_streams("logs")
    assert theirs.worker().reader.dropped_streams("logs") == notes[1]


def marked(bench):
    return set(read_marks(bench.lake.catalog().load_table("otel.logs").properties))
