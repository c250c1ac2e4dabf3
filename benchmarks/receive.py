"""What it costs to accept requests durably: python -m benchmarks.receive [SECONDS].

Every request is different. One JSON line a measurement. The opponents run by turns with the
receiver, on the same requests: the same server with a buffer that keeps nothing, and an
OpenTelemetry Collector whose exporter keeps nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bodies import RECORDS, different_bodies, repeated_body, save
from benchmarks.receivers import NULL, Measured, Server, collector, command, receiver

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECTIONS = 8
ROUNDS = 3
SMALL_RECORDS = 10
# Small requests come from many senders.
SMALL_CONNECTIONS = 64
# A buffer that is full from the start.
FULL_BYTES = 1


def report(
    name: str, value: float, unit: str, wanted: str | None, ratio: float | None = None
) -> None:
    line = {"name": name, "value": round(value, 2), "unit": unit}
    print(json.dumps({**line, "ratio": ratio and round(ratio, 2), "wanted": wanted}), flush=True)


def by_turns(
    servers: Mapping[str, Server], bodies: Path, seconds: float, connections: int = CONNECTIONS
) -> dict[str, Measured]:
    """Load servers one after the other, several times; whatever else the machine does hits all."""
    rounds: dict[str, list[Measured]] = {name: [] for name in servers}
    for server in servers.values():
        server.load(0.5, connections, bodies)
    for _ in range(ROUNDS):
        for name, server in servers.items():
            rounds[name].append(server.load(seconds, connections, bodies))
    return {name: _together(measured) for name, measured in rounds.items()}


def _together(measured: list[Measured]) -> Measured:
    return Measured(
        requests=sum(part.requests for part in measured),
        requests_per_second=statistics.median(part.requests_per_second for part in measured),
        cpu_seconds=sum(part.cpu_seconds for part in measured),
        p50_ms=statistics.median(part.p50_ms for part in measured),
        p99_ms=statistics.median(part.p99_ms for part in measured),
    )


def measure_large(servers: Mapping[str, Server], bodies: Path, seconds: float) -> None:
    """Requests of 1,000 records: the rate, what they cost, and what a refusal costs."""
    measured = by_turns(servers, bodies, seconds)
    ours, full = measured["ours"], measured["full"]
    rate = ours.requests_per_second
    report(
        "receive.durable_rate",
        rate * RECORDS,
        "records/s",
        ">= 0.6",
        rate / measured["null"].requests_per_second,
    )
    report(
        "receive.records_per_cpu_second",
        ours.requests_per_cpu_second * RECORDS,
        "records/s",
        ">= 600000",
        ours.requests_per_cpu_second / measured["collector"].requests_per_cpu_second,
    )
    report(
        "receive.refused_cost",
        ours.requests_per_cpu_second / full.requests_per_cpu_second,
        "of an accepted request's processor time",
        "<= 0.25",
    )
    half = servers["ours"].load(2 * seconds, CONNECTIONS, bodies, rate / 2)
    report("receive.ack_p50_at_half_load", half.p50_ms, "ms", "<= 30")
    report("receive.ack_p99_at_half_load", half.p99_ms, "ms", "<= 250")


def measure_small(servers: Mapping[str, Server], bodies: Path, seconds: float) -> None:
    """Requests of 10 records, where everything around the records is what costs."""
    compared = {name: servers[name] for name in ("ours", "collector")}
    measured = by_turns(compared, bodies, seconds, SMALL_CONNECTIONS)
    ours = measured["ours"].requests_per_cpu_second
    report(
        "receive.small_requests_per_cpu_second",
        ours,
        "requests/s",
        ">= 9000",
        ours / measured["collector"].requests_per_cpu_second,
    )


def measure_repeated(servers: Mapping[str, Server], bodies: Path, seconds: float) -> None:
    """One body again and again, as this benchmark did in its first version."""
    compared = {name: servers[name] for name in ("ours", "collector")}
    measured = by_turns(compared, bodies, seconds)
    ours = measured["ours"].requests_per_cpu_second
    report(
        "receive.repeated_body_records_per_cpu_second",
        ours * RECORDS,
        "records/s",
        None,
        ours / measured["collector"].requests_per_cpu_second,
    )


def measure_workers(directory: Path, large: Path, small: Path, seconds: float) -> None:
    """Two workers on the same ports against one, with the sender on the same machine."""
    with ExitStack() as stack:
        servers = {}
        for workers in (1, 2):
            own = directory / f"workers-{workers}"
            own.mkdir()
            servers[str(workers)] = stack.enter_context(command(own, workers))
        for name, bodies, records in (
            ("receive.two_workers_rate", large, RECORDS),
            ("receive.two_workers_small_rate", small, SMALL_RECORDS),
        ):
            measured = by_turns(servers, bodies, seconds, SMALL_CONNECTIONS)
            one, two = (measured[workers].requests_per_second for workers in ("1", "2"))
            report(name, two * records, "records/s", None, two / one)


def measure(seconds: float) -> None:
    # Not on a file system in memory: its fsync would be free.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch, ExitStack() as stack:
        directory = Path(scratch)
        large, small, repeated = (directory / name for name in ("large", "small", "repeated"))
        save(different_bodies(RECORDS), large)
        save(different_bodies(SMALL_RECORDS), small)
        save(repeated_body(), repeated)
        ours = stack.enter_context(receiver(str(directory / "ours")))
        servers = {
            "null": stack.enter_context(receiver(NULL)),
            "ours": ours,
            "full": stack.enter_context(
                receiver(str(directory / "full"), max_bytes=FULL_BYTES, answers="503")
            ),
            "collector": stack.enter_context(collector(directory)),
        }
        measure_large(servers, large, seconds)
        measure_small(servers, small, seconds)
        measure_repeated(servers, repeated, seconds)
        report("receive.peak_memory", ours.peak_megabytes(), "MB", "<= 400")
        stack.close()
        measure_workers(directory, large, small, seconds)


def main() -> None:
    measure(float(sys.argv[1]) if len(sys.argv) > 1 else 4.0)


if __name__ == "__main__":
    main()
