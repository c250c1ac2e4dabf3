"""`neve serve`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from neve.cli.output import as_record
from neve.observe import sentry

if TYPE_CHECKING:
    from neve.service.receiving import Listening


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
) -> None:
    """Receive OTLP over HTTP and gRPC until SIGTERM or Ctrl-C; what is answered OK is kept."""
    from neve.service.receiving import end_with_parent, serve_observed

    call = context.obj
    settings = call.load().settings
    # No spans: a receiver that is sent its own would never come to rest.
    sentry.start(settings)

    def ready(listening: Listening) -> None:
        if supervised:
            sys.stdout.write(json.dumps(as_record(listening)) + "\n")
            sys.stdout.flush()
            return
        call.output.progress(
            f"OTLP/HTTP on {listening.http}, OTLP/gRPC on {listening.grpc}, "
            f"buffer {settings.buffer.location}"
        )
        if listening.observe:
            call.output.progress(f"metrics and health on {listening.observe}")

    if supervised:
        end_with_parent()
    serve_observed(settings, ready)
