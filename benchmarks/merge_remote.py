"""Merges against `MERGE INTO` in an S3 store that takes 30 ms for each request.

    python -m benchmarks.merge_remote [--rows N] [--changes N …] [--rounds N] [--aged] [--requests]

The same mirrors, changes and statement as in benchmarks/merge.py. The store is the local S3 server
behind a proxy, a process of its own, which waits before it sends a request on. Both sides read and
write through it; the catalog is SQLite on the disk. Mirrors and index are made without the delay.
With `--aged`, both mirrors have 512 data files and 512 snapshots. With `--requests`, what one merge
asks the store for is told.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlsplit

from benchmarks import merge
from neve.config import Settings
from tests.support.proxy import Forward, Request, Response, running_proxy
from tests.support.servers import REGION, S3Server, running_s3

DELAY_SECONDS = 0.03
WANTED = ">= 4"


@dataclass
class SlowStore:
    """A store behind a proxy in another process, which is told how long to wait."""

    uri: str
    _pipe: Connection

    def slow_down(self, seconds: float) -> None:
        self._pipe.send(seconds)
        self._pipe.recv()

    def requests(self) -> list[tuple[str, str, int, float, float]]:
        """Return what was asked for since this was last called: method, path, bytes, times."""
        self._pipe.send(None)
        requests: list[tuple[str, str, int, float, float]] = self._pipe.recv()
        return requests


def _serve(port: int, pipe: Connection) -> None:
    delay_seconds, requests = 0.0, list[tuple[str, str, int, float, float]]()

    def gate(request: Request, forward: Forward) -> Response:
        started = time.monotonic()
        time.sleep(delay_seconds)
        response = forward(request)
        size = len(response.body) or len(request.body)
        requests.append((request.method, request.path, size, started, time.monotonic()))
        return response

    with running_proxy(port, [gate]) as proxy:
        pipe.send(proxy.uri)
        while True:
            try:
                message = pipe.recv()
            except EOFError:
                return
            if message is None:
                pipe.send(list(requests))
                requests.clear()
            else:
                delay_seconds = message
                pipe.send(None)


@contextmanager
def slow_store(server: S3Server) -> Iterator[SlowStore]:
    ours, theirs = multiprocessing.Pipe()
    port = urlsplit(server.endpoint).port
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(port, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield SlowStore(ours.recv(), ours)
    finally:
        ours.close()
        process.join()


def _settings(
    directory: Path, server: S3Server, endpoint: str, *, by_single_requests: bool
) -> Settings:
    settings = merge.local_settings(directory, "")
    document = settings.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    document["catalog"]["warehouse"] = f"s3://{server.bucket}/warehouse"
    document["storage"] = {
        "endpoint": endpoint,
        "region": REGION,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "path_style": True,
    }
    if not by_single_requests:
        document["catalog"]["properties"] = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    document["merge"]["index_cache_directory"] = str(directory / "index-cache")
    return Settings.model_validate(document)


def run(
    rows: int,
    counts: list[int],
    rounds: int,
    *,
    is_aged: bool,
    tells_requests: bool,
    by_single_requests: bool,
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="neve-bench-") as name,
        running_s3(Path(name)) as server,
        slow_store(server) as store,
    ):
        settings = _settings(Path(name), server, store.uri, by_single_requests=by_single_requests)
        with patch.object(merge, "local_settings", lambda *_, **__: settings):
            bench = merge.Bench(Path(name), rows, "bigint", aged=is_aged)
        with bench.lake:
            bench.build()
            store.slow_down(DELAY_SECONDS)
            for count in counts:
                _run_case(bench, store, rows, count, rounds, tells_requests=tells_requests)
            store.slow_down(0)
            bench.check()


def _run_case(
    bench: merge.Bench,
    store: SlowStore,
    rows: int,
    count: int,
    rounds: int,
    *,
    tells_requests: bool,
) -> None:
    name = f"merge_s3_{rows // merge.MILLION}m_{count // 1000}k_bigint"
    name += "_aged" if bench.aged else ""
    # The first has an empty cache on the disk.
    cold = bench.measure(count)[0]
    for _ in range(merge.WARM_UP - 1):
        bench.measure(count)
    pairs = [bench.measure(count) for _ in range(rounds)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    merge.report(name, ours, "s", theirs / ours, WANTED)
    merge.report(f"{name}_merge_into", theirs, "s", None, "")
    merge.report(f"{name}_cold", cold, "s", None, "")
    requests = _requests_of_a_merge(bench, store, count)
    merge.report(f"{name}_requests", len(requests), "requests", None, "")
    if tells_requests:
        _tell(requests)


def _requests_of_a_merge(
    bench: merge.Bench, store: SlowStore, count: int
) -> list[tuple[str, str, int, float, float]]:
    requests = []

    def counted() -> object:
        store.requests()
        report = bench.merger.__class__.merge(bench.merger)
        requests.extend(store.requests())
        return report

    with patch.object(bench.merger, "merge", counted):
        bench.measure(count)
    return requests


def _tell(requests: list[tuple[str, str, int, float, float]]) -> None:
    first = min(started for *_, started, _ in requests)
    for method, path, size, started, ended in sorted(requests, key=lambda part: part[3]):
        line = [method, path.rpartition("warehouse/")[2][-70:], size]
        print(json.dumps([round(started - first, 3), round(ended - first, 3), *line]))
    print(json.dumps(Counter(method for method, *_ in requests)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10 * merge.MILLION)
    parser.add_argument("--changes", type=int, nargs="+", default=[100_000, 1_000])
    parser.add_argument("--rounds", type=int, default=merge.ROUNDS)
    parser.add_argument("--aged", action="store_true")
    parser.add_argument("--requests", action="store_true")
    parser.add_argument("--pyarrow", action="store_true", help="PyIceberg's own FileIO")
    options = parser.parse_args()
    run(
        options.rows,
        options.changes,
        options.rounds,
        is_aged=options.aged,
        tells_requests=options.requests,
        by_single_requests=not options.pyarrow,
    )


if __name__ == "__main__":
    main()
