"""`neve serve`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.output import as_record
from neve.cli.service import say_listening, start_service
from neve.observe import sentry
from neve.service.log import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.cli.app import Call
    from neve.config import Loaded, Settings
    from neve.service.receiving import Listening
    from neve.service.run import Started


def serve(
    context: typer.Context,
    supervised: Annotated[
        Optional[int],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option(
            "--supervised",
            hidden=True,
            help="Write one line of JSON to this descriptor when ready, and end when standard "
            "input does.",
        ),
    ] = None,
    share_ports: Annotated[
        bool,
        typer.Option(
            "--share-ports", hidden=True, help="Let other workers listen on the same ports."
        ),
    ] = False,
) -> None:
    """Receive OTLP over HTTP and gRPC until SIGTERM or Ctrl-C; what is answered OK is kept."""
    call: Call = context.obj
    loaded = start_service(call)
    settings = loaded.settings
    # No spans: a receiver that is sent its own would never come to rest.
    sentry.start(settings)
    if supervised is not None:
        _serve_supervised(call, loaded, supervised, share_ports=share_ports)
        return

    ready = partial(say_listening, settings)
    if settings.receive.workers > 1:
        _serve_by_workers(call, settings, ready)
    else:
        from neve.service.receiving import serve_observed

        serve_observed(loaded, call.load, ready)
    say("stopped", "stopped")


def _serve_supervised(call: Call, loaded: Loaded, descriptor: int, *, share_ports: bool) -> None:
    from neve.service.receiving import end_with_parent, serve_observed
    from neve.service.supervise import announce

    def ready(listening: Listening) -> None:
        announce(descriptor, as_record(listening))

    end_with_parent()
    serve_observed(loaded, call.load, ready, share_ports=share_ports, is_supervised=True)


def _serve_by_workers(call: Call, settings: Settings, ready: Callable[[Started], None]) -> None:
    from neve.observe.metrics import Registry, common_labels
    from neve.service.run import Service
    from neve.service.workers import supervised_workers

    workers = supervised_workers(call.global_options(), settings)
    Service(settings, Registry(common_labels(settings)), [], workers).run(ready)
