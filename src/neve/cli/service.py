"""`neve run`, and what the commands that run until they are stopped have in common."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer

from neve.cli.output import JsonOutput
from neve.observe.json_log import JsonFormatter
from neve.service import log
from neve.service.log import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.cli.app import Call
    from neve.config import Loaded, Settings
    from neve.errors import NeveError
    from neve.observe.metrics import Registry
    from neve.service.receiving import Listening
    from neve.service.run import Part, Started


class ServiceOutput(JsonOutput):
    """Says everything in lines of the log: a spinner would turn for as long as the service runs."""

    def progress(self, text: str) -> None:
        say("progress", text)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        self.progress(text)
        yield


class JsonServiceOutput(ServiceOutput):
    """The same for machines, to the last line."""

    def error(self, error: NeveError) -> None:
        say("error", str(error), level=logging.ERROR, code=error.code.value, hint=error.hint)


def start_service(call: Call) -> Loaded:
    """Read the configuration, and log from now on as services do."""
    from neve.config.reference import secrets_to_mask

    loaded = call.load()
    is_json = call.is_json or loaded.settings.observe.log_format == "json"
    call.output = JsonServiceOutput() if is_json else ServiceOutput()
    call.output.hide(secrets_to_mask(loaded.settings))
    formatter = JsonFormatter if is_json else log.ServiceFormatter
    log.configure(call.verbosity, formatter(call.output.redact))
    log.speak()
    return loaded


def run(context: typer.Context) -> None:
    """Run the receiver, consolidation, merges and upkeep together until SIGTERM or Ctrl-C."""
    call: Call = context.obj
    settings = start_service(call).settings
    run_parts(
        call,
        settings,
        receives=True,
        maintains=settings.upkeep.enabled,
        mirrors=() if settings.merge.tables else None,
    )


def run_parts(
    call: Call,
    settings: Settings,
    *,
    receives: bool = False,
    consolidates: bool = True,
    maintains: bool = False,
    mirrors: tuple[str, ...] | None = None,
    strategy: str = "auto",
) -> None:
    """Run what is asked for until a signal stops it.

    Args:
        mirrors: which to keep, all without a name; None for none at all.
    """
    from neve.observe.metrics import Registry, common_labels
    from neve.service.run import Service
    from neve.service.stopping import stopping_on_signals
    from neve.service.workers import supervised_workers

    # Around the lakes: to close Spark takes seconds, and a second Ctrl-C ends that, too.
    with stopping_on_signals() as stop:
        with ExitStack() as stack:
            registry = Registry(common_labels(settings))
            parts: list[Part] = []
            if consolidates:
                parts += _consolidation(call, stack, registry)
            if mirrors is not None:
                parts += _merges(call, stack, registry, mirrors, strategy)
            if maintains:
                from neve.service.maintenance import TableMaintenance

                parts.append(TableMaintenance(stack.enter_context(call.open()), registry))
            receiver = supervised_workers(call.global_options(), settings) if receives else None
            service = Service(settings, registry, parts, receiver)
            service.run(lambda started: say_listening(settings, started), stop)
        say("stopped", "stopped")


def _consolidation(call: Call, stack: ExitStack, registry: Registry) -> Sequence[Part]:
    from neve.service.consolidation import Consolidation
    from neve.service.speech import say_consolidated
    from neve.service.upkeep import TableUpkeep

    # A lake for each part: they work on threads of their own.
    lakes = [stack.enter_context(call.open()) for _ in range(2)]
    return (
        Consolidation(lakes[0], registry, say_consolidated),
        TableUpkeep(lakes[1], registry),
    )


def _merges(
    call: Call, stack: ExitStack, registry: Registry, mirrors: tuple[str, ...], strategy: str
) -> Sequence[Part]:
    from neve.merge.merger import configured_mergers
    from neve.service.merging import Merging
    from neve.service.speech import NoteSpeaker, say_merged

    lake = stack.enter_context(call.open())
    mergers = configured_mergers(lake, mirrors, call.output.progress, strategy, say_merged)
    interval = lake.settings.merge.interval
    names = ", ".join(merger.name for merger in mergers)
    say("mirrors", f"merging every {interval:g} s: {names}", interval_seconds=interval)
    parallel = lake.settings.merge.parallel_tables
    return (Merging(mergers, interval, registry, NoteSpeaker(), parallel),)


def say_listening(settings: Settings, listening: Listening | Started) -> None:
    """Say where a service listens, and that it is ready."""
    if listening.http:
        location = settings.buffer.location
        say(
            "listening",
            f"OTLP/HTTP on {listening.http}, OTLP/gRPC on {listening.grpc}, buffer {location}",
            http=listening.http,
            grpc=listening.grpc,
            buffer=location,
        )
    if listening.observe:
        say("observable", f"metrics and health on {listening.observe}", http=listening.observe)
    say("ready", "ready; Ctrl-C stops")
