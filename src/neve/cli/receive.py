"""`neve serve` and `neve buffer`."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.output import as_record
from neve.observe import sentry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neve.buffer.reader import StreamStatus
    from neve.cli.app import Call
    from neve.config import Loaded, Settings
    from neve.service.receiving import Listening
    from neve.service.run import Started

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


def serve(
    context: typer.Context,
    supervised: Annotated[
        bool,
        typer.Option(
            "--supervised",
            hidden=True,
            help="Print one line of JSON when ready, and end when standard input does.",
        ),
    ] = False,
    share_ports: Annotated[
        bool,
        typer.Option(
            "--share-ports", hidden=True, help="Let other workers listen on the same ports."
        ),
    ] = False,
) -> None:
    """Receive OTLP over HTTP and gRPC until SIGTERM or Ctrl-C; what is answered OK is kept."""
    call: Call = context.obj
    loaded = call.load()
    settings = loaded.settings
    # No spans: a receiver that is sent its own would never come to rest.
    sentry.start(settings)
    if supervised:
        _serve_supervised(call, loaded, share_ports=share_ports)
        return

    def ready(listening: Listening | Started) -> None:
        call.output.progress(
            f"OTLP/HTTP on {listening.http}, OTLP/gRPC on {listening.grpc}, "
            f"buffer {settings.buffer.location}"
        )
        if listening.observe:
            call.output.progress(f"metrics and health on {listening.observe}")

    if settings.receive.workers > 1:
        _serve_by_workers(call, settings, ready)
    else:
        from neve.service.receiving import serve_observed

        serve_observed(loaded, call.load, ready)


def _serve_supervised(call: Call, loaded: Loaded, *, share_ports: bool) -> None:
    from neve.service.receiving import end_with_parent, serve_observed

    def announce(listening: Listening) -> None:
        sys.stdout.write(json.dumps(as_record(listening)) + "\n")
        sys.stdout.flush()

    end_with_parent()
    serve_observed(loaded, call.load, announce, share_ports=share_ports)


def _serve_by_workers(call: Call, settings: Settings, ready: Callable[[Started], None]) -> None:
    from neve.observe.metrics import Registry, common_labels
    from neve.service.run import Service
    from neve.service.workers import supervised_workers

    workers = supervised_workers(call.global_options(), settings)
    Service(settings, Registry(common_labels(settings)), [], workers).run(ready)


@app.command()
def status(context: typer.Context) -> None:
    """Show the buffer's streams: segments and bytes that wait, and the oldest of them."""
    from neve.buffer.buffer import open_reader
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
    from neve.buffer.buffer import open_store
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
