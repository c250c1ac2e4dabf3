"""`neve run`, and what the commands that run until they are stopped have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from neve.cli.app import Call
    from neve.cli.output import Output
    from neve.consolidate.apply import Report
    from neve.service.run import Service, Started


def run(context: typer.Context) -> None:
    """Run the receiver and consolidation together, supervised, until SIGTERM or Ctrl-C."""
    run_parts(context.obj, receives=True)


def run_parts(call: Call, *, receives: bool = False) -> None:
    """Run consolidation, with a receiver if it is asked for."""
    from neve.observe.metrics import Registry, common_labels
    from neve.service.consolidation import Consolidation
    from neve.service.run import Service, supervised_receiver

    def on_report(report: Report) -> None:
        _print_report(call.output, report)

    with call.open() as lake:
        registry = Registry(common_labels(lake.settings))
        consolidation = Consolidation(lake, registry, on_report)
        receiver = supervised_receiver(call.global_options()) if receives else None
        run_service(call, Service(lake.settings, registry, [consolidation], receiver))


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
