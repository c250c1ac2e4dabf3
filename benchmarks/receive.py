"""How fast requests are accepted durably: python -m benchmarks.receive [SECONDS].

The same server, with the buffer on disk and with one that keeps nothing; one JSON line each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarks.load import RECORDS
from neve.buffer.spec import BufferSpec
from neve.buffer.writer import Receipt
from neve.receive.server import Receiver, serve
from neve.receive.spec import ReceiveSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from neve.buffer.payload import Request
    from neve.observe.durations import DurationHistogram

CONNECTIONS = 8
ROUNDS = 3
# Measured on this load: IceGate, in Rust, into its write-ahead log.
PEER_RECORDS_PER_CPU_SECOND = 220_000
SPEC = ReceiveSpec(http="127.0.0.1:0", grpc="127.0.0.1:0")


class NullSink:
    """A buffer that keeps nothing, and says so at once."""

    trouble = None
    used_bytes = 0
    fsyncs: Mapping[str, DurationHistogram] = MappingProxyType({})

    def append(self, signal: str, request: Request) -> Receipt:  # noqa: ARG002 - a sink's
        durable: Future[None] = Future()
        durable.set_result(None)
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


class Server:
    """A receiver in a process of its own, and what it costs."""

    def __init__(self, location: str) -> None:
        command = [sys.executable, "-m", "benchmarks.receive", "--serve", location]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def load(self, seconds: float, rate: float = 0.0) -> dict[str, Any]:
        """Put a load on it, and return what came of it, with the processor time it took."""
        words = (self.port, seconds, CONNECTIONS, rate)
        command = [sys.executable, "-m", "benchmarks.load", *map(str, words)]
        before = self._cpu_seconds()
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert set(result["statuses"]) == {"200"}, result["statuses"]
        return {**result, "cpu_seconds": self._cpu_seconds() - before}

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_megabytes(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        [peak] = [line for line in lines if line.startswith("VmHWM")]
        return int(peak.split()[1]) / 1024


@contextlib.contextmanager
def running(location: str) -> Iterator[Server]:
    server = Server(location)
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)


def report(name: str, value: float, unit: str, wanted: str, ratio: float | None = None) -> None:
    line = {"name": name, "value": round(value, 2), "unit": unit}
    print(json.dumps({**line, "ratio": ratio and round(ratio, 2), "wanted": wanted}), flush=True)


def measure(seconds: float) -> None:
    with (
        # Not on a file system in memory: its fsync would be free.
        tempfile.TemporaryDirectory(dir=Path.cwd()) as location,
        running("null") as null,
        running(location) as durable,
    ):
        for server in (null, durable):
            server.load(1.0)
        # By turns, so that whatever else the machine does hits both.
        pairs = [(null.load(seconds), durable.load(seconds)) for _ in range(ROUNDS)]
        rate = statistics.median(kept["requests_per_second"] for _, kept in pairs)
        nothing = statistics.median(gone["requests_per_second"] for gone, _ in pairs)
        half = durable.load(2 * seconds, rate / 2)
        cpu = sum(kept["cpu_seconds"] for _, kept in pairs)
        per_cpu_second = sum(kept["requests"] for _, kept in pairs) * RECORDS / cpu
        peak = durable.peak_megabytes()
    report("receive.durable_rate", rate * RECORDS, "records/s", ">= 0.6", rate / nothing)
    report(
        "receive.records_per_cpu_second",
        per_cpu_second,
        "records/s",
        ">= 150000",
        per_cpu_second / PEER_RECORDS_PER_CPU_SECOND,
    )
    report("receive.ack_p50_at_half_load", half["p50_ms"], "ms", "<= 30")
    report("receive.ack_p99_at_half_load", half["p99_ms"], "ms", "<= 250")
    report("receive.peak_memory", peak, "MB", "<= 400")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        location = sys.argv[2]
        if location == "null":
            asyncio.run(serve_nothing())
        else:
            serve(SPEC, BufferSpec(location, max_bytes=1 << 40), on_ready=announce)
    else:
        measure(float(sys.argv[1]) if len(sys.argv) > 1 else 4.0)


if __name__ == "__main__":
    main()
