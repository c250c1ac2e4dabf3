"""`neve serve`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.output import as_record
from neve.observe import sentry

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.cli.app import Call
    from neve.config import Loaded, Settings
    from neve.service.receiving import Listening
    from neve.service.run import Started


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
