"""`neve run`, and what the commands that run until they are stopped have in common."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from neve.cli.app import Call
    from neve.cli.output import Output
    from neve.consolidate.report import Report
    from neve.service.run import Service, Started


def run(context: typer.Context) -> None:
    """Run the receiver, consolidation and merges together until SIGTERM or Ctrl-C."""
    call: Call = context.obj
    settings = call.load().settings
    run_parts(call, receives=True, mirrors=() if settings.merge.tables else None)


def run_parts(
    call: Call,
    *,
    receives: bool = False,
    consolidates: bool = True,
    mirrors: tuple[str, ...] | None = None,
    strategy: str = "auto",
) -> None:
    """Run what is asked for until a signal stops it.

    Args:
        mirrors: which to keep, all without a name; None for none at all.
    """
    from neve.merge.merger import configured_mergers
    from neve.observe.metrics import Registry, common_labels
    from neve.service.consolidation import Consolidation
    from neve.service.merging import Merging
    from neve.service.run import Part, Service
    from neve.service.upkeep import TableUpkeep
    from neve.service.workers import supervised_workers

    with ExitStack() as stack:
        lake = stack.enter_context(call.open())
        registry = Registry(common_labels(lake.settings))
        parts: list[Part] = []
        if consolidates:
            parts.append(Consolidation(lake, registry, partial(_print_report, call.output)))
            # A lake of its own: parts work on threads of their own.
            parts.append(TableUpkeep(stack.enter_context(call.open()), registry))
        if mirrors is not None:
            own = stack.enter_context(call.open())
            mergers = configured_mergers(own, mirrors, call.output.progress, strategy)
            interval = own.settings.merge.interval
            parts.append(Merging(mergers, interval, registry, lambda _: None))
        receiver = supervised_workers(call.global_options(), lake.settings) if receives else None
        run_service(call, Service(lake.settings, registry, parts, receiver))


def run_service(call: Call, service: Service) -> None:
    """Run a service until a signal stops it, saying where it listens."""

    def ready(started: Started) -> None:
        if started.http:
            call.output.progress(f"OTLP/HTTP on {started.http}, OTLP/gRPC on {started.grpc}")
        if started.observe:
            call.output.progress(f"metrics and health on {started.observe}")

    with call.output.working("waiting for data"):
        service.run(ready)


def _print_report(output: Output, report: Report) -> None:
    for one in report.results:
        output.progress(f"{one.table}: {one.outcome} {one.rows} rows in {one.seconds:.1f} s")
