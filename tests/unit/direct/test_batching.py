"""Many requests by one commit; each is answered when its own rows are kept."""

import threading
from concurrent.futures import wait

import pytest

from neve.direct import BatchingWriter
from neve.errors import CatalogError, MalformedError, UnavailableError
from neve.signals import Signal
from tests.support.otlp_bodies import protobuf
from tests.support.wire import request
from tests.unit.direct.test_requests import LATE, foreign, log, metrics

SECONDS = 30
BODY = protobuf(Signal.LOGS, "x" * 2_000, records=2)


@pytest.fixture
def open_batching(open_writer):
    opened = []

    def make(observer=None, **direct) -> BatchingWriter:
        limits = {"max_seconds": 600.0, **direct}
        opened.append(BatchingWriter(open_writer(observer, direct=limits)))
        return opened[-1]

    yield make
    for writer in opened:
        writer.close()


def stored(rows):
    return sorted(row["body"] for row in rows("logs", "body"))


def test_many_requests_become_one_commit_and_close_writes_what_waits(open_batching, rows):
    commits = []
    writer = open_batching(commits.append)
    futures = [
        writer.submit("logs", protobuf(Signal.LOGS, f"r{number}", records=number % 3))
        for number in range(12)
    ]
    assert not any(future.done() for future in futures)
    writer.close()
    results = [future.result(0) for future in futures]
    assert [result.rows for result in results] == [number % 3 for number in range(12)]
    assert all(result.committed for result in results)
    (commit,) = commits
    assert commit.rows == 12
    assert len(stored(rows)) == 12
    with pytest.raises(UnavailableError, match="closed"):
        writer.submit("logs", b"")


@pytest.mark.parametrize(
    "limit", [{"max_rows": 10}, {"max_bytes": 5 * len(BODY)}, {"max_seconds": 0.1}]
)
def test_a_batch_is_written_when_a_limit_is_reached(open_batching, rows, limit):
    writer = open_batching(**limit)
    futures = [writer.submit("logs", BODY) for _ in range(5)]
    for future in futures:
        (table,) = future.result(SECONDS).tables
        assert (table.rows, table.committed) == (2, True)
    assert len(stored(rows)) == 10


def test_a_batch_holds_no_more_than_its_limit(open_batching):
    commits = []
    writer = open_batching(commits.append, max_rows=4)
    futures = [writer.submit("logs", protobuf(Signal.LOGS, f"r{n}", 3)) for n in range(4)]
    # A request of more rows than the limit is a batch of its own.
    futures.append(writer.submit("logs", protobuf(Signal.LOGS, "large", 9)))
    writer.close()
    assert all(future.result(0).committed for future in futures)
    assert sorted(commit.rows for commit in commits) == [3, 3, 3, 3, 9]


def test_an_answer_comes_after_the_rows_are_to_be_seen(open_batching, rows):
    writer = open_batching(max_rows=1)
    seen = []
    future = writer.submit("logs", protobuf(Signal.LOGS, "a"))
    future.add_done_callback(lambda _: seen.append(stored(rows)))
    future.result(SECONDS)
    writer.close()
    assert seen == [["a 0"]]


def test_requests_beyond_the_bound_are_refused_and_the_others_are_kept(open_batching, rows):
    writer = open_batching(max_rows=1, max_bytes=4_000)
    body = protobuf(Signal.LOGS, "x" * 1_000)
    with writer._writer._sink._opening:  # so that the first batch cannot go on
        # One batch is being written, and less than a whole one waits.
        futures = [writer.submit("logs", body) for _ in range(3)]
        with pytest.raises(UnavailableError, match="wait to be written already") as refusal:
            writer.submit("logs", body)
        assert refusal.value.retryable
        # Other signals have a bound of their own.
        futures.append(writer.submit("traces", protobuf(Signal.TRACES)))
    done, _ = wait(futures, SECONDS)
    assert len(done) == len(futures)
    assert len(stored(rows)) == len(futures) - 1
    # There is room again.
    assert writer.write_request("logs", body).committed


def test_a_request_larger_than_the_bound_is_taken_when_nothing_else_waits(open_batching):
    writer = open_batching(max_rows=1, max_bytes=1_000)
    assert writer.write_request("logs", protobuf(Signal.LOGS, "x" * 5_000)).committed


def test_bad_requests_harm_no_other_of_their_batch(open_batching, lake, rows):
    foreign(lake, "metrics_sum")
    writer = open_batching()
    with pytest.raises(MalformedError):
        writer.submit("logs", b"\xff")
    good = writer.submit("logs", protobuf(Signal.LOGS, "good"))
    late = writer.submit("logs", request([log("some"), LATE]))
    gauge, summed = (writer.submit("metrics", metrics(kind)) for kind in ("gauge", "sum"))
    writer.close()
    assert (good.result(0).rejected, good.result(0).warning) == (0, "")
    assert (late.result(0).rejected, late.result(0).rows) == (1, 1)
    assert gauge.result(0).committed
    assert isinstance(summed.exception(0), CatalogError)
    assert stored(rows) == ["good 0", "some"]


def test_a_request_that_is_cancelled_in_time_is_not_written(open_batching, rows):
    writer = open_batching()
    kept = writer.submit("logs", protobuf(Signal.LOGS, "kept"))
    assert writer.submit("logs", protobuf(Signal.LOGS, "cancelled")).cancel()
    writer.close()
    assert kept.result(0).committed
    assert stored(rows) == ["kept 0"]


def test_threads_submit_at_once_and_each_gets_its_own_result(open_batching, rows):
    commits = []
    writer = open_batching(commits.append, max_seconds=0.05)
    results = {}

    def send(number):
        body = protobuf(Signal.LOGS, f"r{number}", records=number)
        results[number] = writer.write_request("logs", body)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert {number: result.rows for number, result in results.items()} == {
        number: number for number in range(1, 17)
    }
    assert len(commits) < 16
    assert len(stored(rows)) == sum(range(1, 17))
