"""Telemetry through a real receiver: acknowledged, killed, and all of it still there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from neve.cli.demo.receiver import running_receiver
from neve.cli.receive import status_rows
from neve.errors import CorruptionError, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from neve.buffer.reader import BufferReader, StreamStatus
    from neve.cli.output import Output

STATUS_COLUMNS = ("stream", "segments", "bytes", "open_bytes", "oldest_age_seconds", "state")


def tell(config: Path, output: Output, step: Callable[[str], None]) -> list[dict[str, Any]]:
    """Send telemetry, end the receiver the hard way, and return what the buffer has of each table.

    Raises:
        CorruptionError: that is not what was sent.
    """
    try:
        from neve.cli.demo import client
    except ImportError as error:
        raise SetupError(
            "the demo sends with the OpenTelemetry SDK, which is not installed",
            hint="pip install 'neve[demo]'",
        ) from error
    buffer = _Buffer(config)
    with running_receiver(config) as receiver:
        step(f"neve serve, a process of its own, listens for OTLP on {receiver.http}.")
        last = client.send(receiver.http)
        step(
            f"The OpenTelemetry SDK sends {client.SENT['logs']} log records, "
            f"{client.SENT['traces']} spans and metrics of all five kinds.\n   All were answered "
            "OK, which means that they are on disk. What is buffered now:\n"
        )
        output.show(STATUS_COLUMNS, status_rows(buffer.streams()))
        output.say("")
        receiver.kill()
    step("kill -9: the receiver is gone, without a chance to flush or to say goodbye.")
    with running_receiver(config, receiver.http) as receiver:
        client.post_metrics(receiver.http, last)
        step(
            "The next receiver takes over. A client that never saw the answer to its last request\n"
            "   sends it again: acknowledged again, and stored once."
        )
        status = receiver.stop()
    step(f"SIGTERM: it finishes what it took, and ends with status {status}.")
    kept = buffer.rows()
    if kept != client.SENT:
        raise CorruptionError("the buffer does not hold what was acknowledged", hint="report it")
    return [
        {"table": table, "sent": sent, "kept": kept[table]} for table, sent in client.SENT.items()
    ]


class _Buffer:
    """What this demo adds to the buffer of its lake; earlier ones may have left something."""

    def __init__(self, config: Path) -> None:
        from neve.buffer.apply import open_reader
        from neve.buffer.spec import buffer_spec
        from neve.config import load

        self._reader: BufferReader = open_reader(buffer_spec(load(config).settings))
        self._earlier = {stream.stream for stream in self._reader.streams()}

    def streams(self) -> list[StreamStatus]:
        return [stream for stream in self._reader.streams() if stream.stream not in self._earlier]

    def rows(self) -> Counter[str]:
        """Decode everything, and count the rows of each table."""
        from neve.signals import Signal
        from neve.telemetry.decode import decode

        rows: Counter[str] = Counter()
        for stream in self.streams():
            for segment in self._reader.segments(stream.stream):
                for batch in self._reader.read(segment):
                    decoded = decode(
                        Signal(stream.signal), batch["payload"], batch["received_unix_nano"]
                    )
                    rows.update({name: table.num_rows for name, table in decoded.tables.items()})
        return rows
