"""Telemetry through a real receiver: acknowledged, killed, and all of it still there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.buffer.buffer import open_reader
from neve.buffer.spec import buffer_spec
from neve.cli.buffering import status_rows
from neve.cli.demo.receiver import running_receiver
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from neve.cli.output import Output
    from neve.lake import Lake

STATUS_COLUMNS = ("stream", "segments", "bytes", "open_bytes", "oldest_age_seconds", "state")


def tell(lake: Lake, config: Path, output: Output, step: Callable[[str], None]) -> dict[str, int]:
    """Send telemetry, end the receiver the hard way, and return what was sent to each table."""
    from neve.cli.demo import client

    buffer = open_reader(buffer_spec(lake.settings))
    with running_receiver(config) as receiver:
        step(f"neve serve, a process of its own, listens for OTLP on {receiver.http}.")
        last = client.send(receiver.http)
        step(
            f"The OpenTelemetry SDK sends {client.SENT['logs']:,} log records, "
            f"{client.SENT['traces']:,} spans and metrics of all five kinds.\n   All were answered "
            "OK, which means that they are on disk. What is buffered now:\n"
        )
        output.show(STATUS_COLUMNS, status_rows(buffer.streams()))
        output.say("")
        size, status, reason = client.send_bomb(receiver.http)
        step(
            f"Somebody sends {size / 1000:.0f} kB that unpack to 30 million empty spans. They are\n"
            f"   counted before anything is built from them, and answered {status}:\n   {reason}"
        )
        receiver.kill()
    step("kill -9: the receiver is gone, without a chance to flush or to say goodbye.")
    with running_receiver(config, receiver.http) as receiver:
        client.post(receiver.http, Signal.METRICS, last)
        step(
            "The next receiver takes over. A client that never saw the answer to its last request\n"
            "   sends it again: acknowledged again, and stored once."
        )
        status = receiver.stop()
    step(f"SIGTERM: it finishes what it took, and ends with status {status}.")
    return dict(client.SENT)
