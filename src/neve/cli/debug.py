"""`neve debug`: what the tests of a deployment need."""

from __future__ import annotations

import typer

from neve import failpoints

app = typer.Typer(help="For testing a deployment.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """For testing a deployment."""


@app.command("failpoints")
def list_failpoints(context: typer.Context) -> None:
    """List the points at which NEVE_FAILPOINT=name ends the process, as a power cut would."""
    context.obj.output.rows(
        ("name", "interrupts"),
        [{"name": name, "interrupts": what} for name, what in failpoints.POINTS.items()],
    )
