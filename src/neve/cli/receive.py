"""`neve serve` and `neve buffer`."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neve.buffer.reader import StreamStatus
    from neve.receive.apply import Receiver

STATUS_COLUMNS = (
    "stream",
    "segments",
    "bytes",
    "open_bytes",
    "oldest_received_at",
    "oldest_age_seconds",
    "retired_through",
    "state",
    "missing",
)

app = typer.Typer(help="What is buffered, and what was set aside.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """What is buffered, and what was set aside."""


def serve(context: typer.Context) -> None:
    """Receive OTLP over HTTP and gRPC until SIGTERM or Ctrl-C; what is answered OK is kept."""
    from neve.buffer.spec import buffer_spec
    from neve.receive.apply import serve as receive
    from neve.receive.spec import receive_spec

    call = context.obj
    settings = call.load().settings

    def ready(receiver: Receiver) -> None:
        call.output.progress(
            f"OTLP/HTTP on {receiver.http_address}, OTLP/gRPC on {receiver.grpc_address}, "
            f"buffer {settings.buffer.location}"
        )

    receive(receive_spec(settings), buffer_spec(settings), on_ready=ready)


@app.command()
def status(context: typer.Context) -> None:
    """Show the buffer's streams: segments and bytes that wait, and the oldest of them."""
    from neve.buffer.apply import open_reader
    from neve.buffer.spec import buffer_spec

    reader = open_reader(buffer_spec(context.obj.load().settings))
    rows = status_rows(reader.streams())
    context.obj.output.rows(STATUS_COLUMNS, rows)
    if not rows:
        context.obj.output.say("The buffer is empty. Start a receiver with: neve serve")


def status_rows(streams: Iterable[StreamStatus]) -> list[dict[str, Any]]:
    """Return a row of `STATUS_COLUMNS` for each stream."""
    now = time.time_ns()
    rows = []
    for stream in streams:
        oldest = stream.oldest_received_unix_nano
        rows.append(
            {
                "stream": stream.stream,
                "segments": stream.segments,
                "bytes": stream.bytes,
                "open_bytes": stream.open_bytes,
                "oldest_received_at": _time(oldest) if oldest else None,
                "oldest_age_seconds": round((now - oldest) / 1e9, 1) if oldest else None,
                "retired_through": stream.retired_through,
                "state": "closed" if stream.closed else "open",
                "missing": stream.missing,
            }
        )
    return rows


@app.command("dead-letters")
def dead_letters(context: typer.Context) -> None:
    """List what was acknowledged and could not become rows, with the reasons."""
    from neve.buffer.apply import open_store
    from neve.buffer.dead_letters import read_dead_letters
    from neve.buffer.spec import buffer_spec

    store = open_store(buffer_spec(context.obj.load().settings))
    rows = [
        {**letter, **reason} for letter in read_dead_letters(store) for reason in letter["reasons"]
    ]
    columns = ("stream", "segment", "position", "path", "reason", "file")
    context.obj.output.rows(columns, rows)


def _time(unix_nano: int) -> datetime:
    return datetime.fromtimestamp(unix_nano / 1e9, timezone.utc)
