"""What a run of consolidation asks of an object store: few listings, and reads of what is new."""

from __future__ import annotations

import threading
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
from tests.support.consolidation import SIGNALS, Bench
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.proxy import running_proxy
from tests.support.requests import buffered
from tests.support.servers import REGION

RECEIVERS = 3


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
    # For each receiver: what its new segment has, once to find copies and once to decode it, and
    # the declaration of the run before.
    assert requests_of_store.others["GET"] <= 3 * RECEIVERS
