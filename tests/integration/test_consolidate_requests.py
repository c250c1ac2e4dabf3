"""What a run of consolidation asks of an object store: few listings, and reads of what is new."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

import neve
from neve.buffer.buffer import open_buffer
from neve.buffer.spec import BufferSpec, ObjectStorage
from neve.consolidate.watch import look
from neve.signals import Signal
from tests.support import aged
from tests.support.consolidation import SIGNALS, Bench
from tests.support.lakes import rest_settings, sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.proxy import running_proxy
from tests.support.requests import buffered
from tests.support.servers import REGION

RECEIVERS = 3
# Metadata with 300 snapshots has 240 kB.
LARGE = 100_000


class Requests:
    """Counts what is asked of a store: listings by their prefix, reads and writes."""

    def __init__(self):
        self.listings = Counter()
        self.others = Counter()
        self._lock = threading.Lock()

    def __call__(self, request, forward):
        with self._lock:
            if "list-type" in request.query:
                (prefix,) = request.query.get("prefix", [""])
                self.listings[prefix.strip("/").rpartition("/")[2]] += 1
            else:
                self.others[request.method] += 1
        return forward(request)

    def clear(self):
        self.listings.clear()
        self.others.clear()


class Silent:
    def looked(self, streams):
        pass

    def ended(self, report, trouble):
        assert trouble is None


@pytest.fixture
def requests_of_store(s3):
    counted = Requests()
    with running_proxy(urlsplit(s3.endpoint).port, [counted]) as proxy:
        counted.endpoint = proxy.uri
        yield counted


@pytest.fixture
def bench(s3, requests_of_store, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        bench = Bench(lake, tmp_path)
        keys = (REGION, s3.access_key, s3.secret_key)
        bench.buffer = BufferSpec(
            location=f"s3://{s3.bucket}/{tmp_path.name}",
            storage=ObjectStorage(s3.endpoint, *keys),
            put_interval_seconds=0,
        )
        proxied = replace(bench.buffer, storage=ObjectStorage(requests_of_store.endpoint, *keys))
        bench.spec = replace(bench.spec, buffer=proxied)
        yield bench


def test_a_run_lists_twice_whatever_the_number_of_streams_and_reads_what_is_new(
    bench, requests_of_store
):
    """Streams have marks, hashes in the dedup window and a note of one that was dropped."""
    worker, stop = bench.worker(), threading.Event()
    bench.send(Signal.LOGS, "of a receiver that has ended")
    with ExitStack() as receivers:
        buffers = [
            receivers.enter_context(open_buffer(bench.buffer, SIGNALS)) for _ in range(RECEIVERS)
        ]
        for number in range(4):
            for of, buffer in enumerate(buffers):
                body = buffered(protobuf(Signal.LOGS, f"{number} {of}", 1))
                buffer.append("logs", body).durable.result(10)
            requests_of_store.clear()
            report = look(worker, stop, Silent())
            assert report.rows >= RECEIVERS
    # The other signals are only looked at.
    assert requests_of_store.listings == {"logs": 2, "metrics": 1, "traces": 1}
    # For each receiver: what its new segment has, once to find copies and once to decode it. The
    # declaration of the run before was put by this worker.
    assert requests_of_store.others["GET"] <= 2 * RECEIVERS


def test_a_batch_at_an_old_table_has_a_server_send_the_metadata_twice(s3, rest_catalog, tmp_path):
    """In the answers of its commits; before each step, the server says that nothing has changed."""
    answers = []

    def record(request, forward):
        response = forward(request)
        if request.path.endswith("/tables/logs"):
            answers.append((request.method, len(response.body) > LARGE))
        return response

    namespace = f"n{uuid.uuid4().hex[:8]}"
    with running_proxy(rest_catalog.port, [record]) as proxy:
        settings = rest_settings(proxy.uri, s3)
        with neve.open(settings) as lake:
            bench = Bench(lake, tmp_path, namespace=namespace)
            worker = bench.worker()
            bench.send(Signal.LOGS, "a")
            worker.run_once()
            aged.add_snapshots(aged.staging(lake, f"{namespace}.logs"), 300)
            for name in "bc":
                answers.clear()
                bench.send(Signal.LOGS, name)
                assert worker.run_once().rows == 2
    assert [method for method, is_large in answers if is_large] == ["POST", "POST"]
