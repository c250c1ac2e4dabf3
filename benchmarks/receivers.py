"""What a load is put on: receivers in processes of their own, and what they cost.

python -m benchmarks.receivers LOCATION MAX_BYTES runs one; it prints its port.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import uvloop
import yaml

from neve.buffer.outcome import Outcome
from neve.buffer.spec import BufferSpec
from neve.buffer.writer import Receipt
from neve.receive.server import Receiver, serve
from neve.receive.spec import ReceiveSpec
from tests.support.install import COLLECTOR, install
from tests.support.process import Process, accepts_connections, free_port
from tests.support.scraping import Scraped

if TYPE_CHECKING:
    from neve.buffer.payload import Request
    from neve.observe.durations import DurationHistogram

NULL = "null"
NO_LIMIT_BYTES = 1 << 40
SPEC = ReceiveSpec(http="127.0.0.1:0", grpc="127.0.0.1:0")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """What came of a load, and the processor time that the server took for it."""

    requests: int
    requests_per_second: float
    cpu_seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def requests_per_cpu_second(self) -> float:
        return self.requests / self.cpu_seconds


@dataclass(frozen=True)
class Server:
    """A server that listens, and the status it has to answer with."""

    port: int
    pid: int
    answers: str = "200"

    def load(self, seconds: float, connections: int, bodies: Path, rate: float = 0.0) -> Measured:
        """Put a load on it; fail if it answers anything else."""
        words = (self.port, seconds, connections, rate, bodies)
        command = [sys.executable, "-m", "benchmarks.load", *map(str, words)]
        before = self.cpu_seconds()
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        cpu_seconds = self.cpu_seconds() - before
        assert set(result.pop("statuses")) == {self.answers}, result
        return Measured(cpu_seconds=cpu_seconds, **result)

    def cpu_seconds(self) -> float:
        """Return the processor time it took so far, with all its threads and children."""
        return sum(_cpu_ticks(pid) for pid in _with_children(self.pid)) / TICKS_PER_SECOND

    def peak_megabytes(self) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        [peak] = [line for line in lines if line.startswith("VmHWM")]
        return int(peak.split()[1]) / 1024


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _with_children(pid: int) -> list[int]:
    # Listed by the thread that started them.
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [
        pid,
        *(each for children in lists for child in children for each in _with_children(int(child))),
    ]


@contextmanager
def receiver(
    location: str, *, max_bytes: int = NO_LIMIT_BYTES, answers: str = "200"
) -> Iterator[Server]:
    """Run a receiver whose buffer is at a location, or keeps nothing at all."""
    command = [sys.executable, "-m", "benchmarks.receivers", location, str(max_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(int(process.stdout.readline()), process.pid, answers)
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def command(directory: Path, workers: int) -> Iterator[Server]:
    """Run `neve serve` with so many workers."""
    port, observed = free_port(), Scraped(free_port())
    environment = {
        "NEVE_RECEIVE__HTTP": f"127.0.0.1:{port}",
        "NEVE_RECEIVE__GRPC": "127.0.0.1:0",
        "NEVE_RECEIVE__WORKERS": str(workers),
        "NEVE_BUFFER__LOCATION": str(directory / "buffer"),
        "NEVE_BUFFER__MAX_BYTES": str(NO_LIMIT_BYTES),
        "NEVE_OBSERVE__HTTP": f"127.0.0.1:{observed.port}",
    }
    words = [sys.executable, "-m", "neve", "serve"]
    process = Process("neve serve", words, directory / "serve.log", environment=environment)
    process.wait_until(lambda: observed.is_ready)
    try:
        yield Server(port, process.pid)
    finally:
        process.stop()


@contextmanager
def collector(directory: Path) -> Iterator[Server]:
    """Run the OpenTelemetry Collector that the tests build, with an exporter that keeps nothing."""
    install(lambda line: print(line, file=sys.stderr), [COLLECTOR], [])
    port = free_port()
    protocols = {"http": {"endpoint": f"127.0.0.1:{port}"}}
    config = {
        "receivers": {"otlp": {"protocols": protocols}},
        "exporters": {"nop": {}},
        "service": {
            "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["nop"]}},
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    path = directory / "collector.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [COLLECTOR.directory / "otelcol", "--config", path]
    process = Process("Collector", command, directory / "collector.log")
    process.wait_until(lambda: accepts_connections(port))
    try:
        yield Server(port, process.pid)
    finally:
        process.stop()


class NullSink:
    """A buffer that keeps nothing, and says so at once."""

    trouble = None
    is_alive = True
    used_bytes = 0
    fsyncs: Mapping[str, DurationHistogram] = MappingProxyType({})

    def check_room(self, size: int, signal: str) -> None:
        """There is always room."""

    def append(self, signal: str, request: Request) -> Receipt:  # noqa: ARG002 - a sink's
        durable = Outcome()
        durable.set_result()
        return Receipt(durable, duplicate=False)

    def close(self, timeout_seconds: float) -> bool:  # noqa: ARG002 - a sink's
        return True


def announce(receiver: Receiver) -> None:
    print(receiver.http_address.port, flush=True)


async def serve_nothing() -> None:
    receiver = Receiver(SPEC, NullSink())
    await receiver.start()
    announce(receiver)
    await asyncio.Event().wait()


def main() -> None:
    location, max_bytes = sys.argv[1:]
    if location == NULL:
        uvloop.run(serve_nothing())
    else:
        serve(SPEC, BufferSpec(location, max_bytes=int(max_bytes)), on_ready=announce)


if __name__ == "__main__":
    main()
