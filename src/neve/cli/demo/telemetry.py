"""Telemetry through a real receiver: acknowledged, killed, and all of it still there."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from neve.buffer.buffer import open_reader
from neve.buffer.spec import buffer_spec
from neve.cli.demo.receiver import ReceiverProcess, running_receiver
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from neve.buffer.reader import StreamStatus
    from neve.cli.demo.narrator import Narrator
    from neve.lake import Lake

_STREAM_COLUMNS = ("stream", "bytes", "state")  # as many as 80 columns have room for


def tell(lake: Lake, config: Path, narrator: Narrator) -> dict[str, int]:
    """Send telemetry, end the receiver the hard way, and return what was sent to each table."""
    from neve.cli.demo import client

    buffer = open_reader(buffer_spec(lake.settings))
    with _starting(config, narrator) as receiver:
        narrator.step(f"neve serve, a process of its own, listens for OTLP on {receiver.http}.")
        with narrator.working(f"sending {sum(client.SENT.values()):,} records"):
            last = client.send(receiver.http)
        narrator.step(
            f"The OpenTelemetry SDK sends {client.SENT['logs']:,} log records, "
            f"{client.SENT['traces']:,} spans and metrics of all five kinds. All were answered "
            "OK, which means that they are on disk. What is buffered now:"
        )
        narrator.show(_STREAM_COLUMNS, _streams(buffer.streams()))
        with narrator.working("sending a request that unpacks to 30 million spans"):
            size, status, reason = client.send_bomb(receiver.http)
        narrator.step(
            f"Somebody sends {size / 1000:.0f} kB that unpack to 30 million empty spans. They are "
            f"counted before anything is built from them, and answered {status}:"
        )
        narrator.explain(reason)
        receiver.kill()
    narrator.step("kill -9: the receiver is gone, without a chance to flush or to say goodbye.")
    with _starting(config, narrator, receiver.http) as receiver:
        client.post(receiver.http, Signal.METRICS, last)
        narrator.step(
            "The next receiver takes over. A client that never saw the answer to its last request "
            "sends it again: acknowledged again, and stored once."
        )
        status = receiver.stop()
    narrator.step(f"SIGTERM: it finishes what it took, and ends with status {status}.")
    return dict(client.SENT)


def _streams(streams: Iterable[StreamStatus]) -> list[dict[str, Any]]:
    return [
        {
            "stream": stream.stream,
            "bytes": stream.bytes + stream.open_bytes,
            "state": "closed" if stream.closed else "open",
        }
        for stream in streams
    ]


@contextmanager
def _starting(
    config: Path, narrator: Narrator, http: str = "127.0.0.1:0"
) -> Iterator[ReceiverProcess]:
    """Run a receiver until the block ends; say that it starts."""
    with ExitStack() as stack:
        with narrator.working("starting a receiver"):
            receiver = stack.enter_context(running_receiver(config, http))
        yield receiver
