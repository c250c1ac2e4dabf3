"""`neve staged`: what audits hold back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.cli.ages import parse_age
from neve.cli.output import as_record
from neve.errors import EXIT_INCOMPLETE, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.lake import Lake
    from neve.publish.staged_batches import HeldResult, HeldSelection

app = typer.Typer(help="What audits hold back.", no_args_is_help=True)

_Table = Annotated[str, typer.Argument(help="namespace.table")]
_Batch = Annotated[str, typer.Argument(help="The batch's id, as neve staged list shows it.")]
_AnyTable = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
    typer.Argument(help="namespace.table; all telemetry tables without it."),
]
_AnyBatch = Annotated[
    Optional[str],  # noqa: UP045 - as above
    typer.Argument(help="The batch's id, as neve staged list shows it."),
]
_All = Annotated[bool, typer.Option("--all", help="Every held batch of the table, or of all.")]
_OlderThan = Annotated[
    Optional[str],  # noqa: UP045 - as above
    typer.Option("--older-than", metavar="T", help="Those held for longer than 7d, 12h, 30m."),
]
_LIST_COLUMNS = (
    "table",
    "batch_id",
    "state",
    "rows",
    "files",
    "age_seconds",
    "staged_at",
    "snapshot_id",
    "ref",
)
_RESULT_COLUMNS = ("table", "batch_id", "rows", "age_seconds", "outcome", "error")


@app.callback()
def group() -> None:
    """What audits hold back."""


@app.command("list")
def list_batches(context: typer.Context, table: _AnyTable = None) -> None:
    """List the batches that are staged or held, with their age and rows."""
    from neve.publish.staged_list import list_staged

    with context.obj.open() as lake:
        batches = [as_record(batch) for batch in list_staged(lake, table)]
    context.obj.output.rows(_LIST_COLUMNS, batches)


@app.command()
def show(
    context: typer.Context,
    table: _Table,
    batch: _Batch,
    limit: Annotated[int, typer.Option("--limit", help="How many rows to show.")] = 20,
) -> None:
    """Show the rows of a held batch."""
    from neve.publish.staged_batches import show as show_batch

    with context.obj.open() as lake:
        answer = show_batch(lake, table, batch, limit)
    context.obj.output.rows(answer.column_names, answer.to_pylist(maps_as_pydicts="lossy"))


@app.command()
def publish(
    context: typer.Context,
    table: _AnyTable = None,
    batch: _AnyBatch = None,
    everything: _All = False,
    older_than: _OlderThan = None,
) -> None:
    """Publish held batches after all; their rows come in exactly once.

    Several are published the oldest first, each on its own. Ends with 3 if some failed.
    """
    from neve.publish.staged_batches import release, release_selected

    if batch is None:
        _act_on_selected(context, table, everything, older_than, release_selected)
        return
    name = _named_table(table, everything, older_than)
    with context.obj.open() as lake:
        outcome = release(lake, name, batch).value
    context.obj.output.record({"table": name, "batch_id": batch, "outcome": outcome})


@app.command()
def discard(
    context: typer.Context,
    table: _AnyTable = None,
    batch: _AnyBatch = None,
    everything: _All = False,
    older_than: _OlderThan = None,
) -> None:
    """Give held batches up; their rows are never published. Ends with 3 if some failed."""
    from neve.publish.staged_batches import DISCARDED, discard_selected
    from neve.publish.staged_batches import discard as discard_batch

    if batch is None:
        _act_on_selected(context, table, everything, older_than, discard_selected)
        return
    name = _named_table(table, everything, older_than)
    with context.obj.open() as lake:
        discard_batch(lake, name, batch)
    context.obj.output.record({"table": name, "batch_id": batch, "outcome": DISCARDED})


def _named_table(table: str | None, everything: bool, older_than: str | None) -> str:
    if everything or older_than is not None or table is None:
        raise UsageError("name one batch, or say --all or --older-than, not both")
    return table


def _act_on_selected(
    context: typer.Context,
    table: str | None,
    everything: bool,
    older_than: str | None,
    act: Callable[[Lake, HeldSelection], list[HeldResult]],
) -> None:
    from neve.publish.staged_batches import FAILED, HeldSelection

    if not everything and older_than is None:
        raise UsageError(
            "name a table and a batch, or say --all or --older-than", hint="see: neve staged list"
        )
    age_seconds = parse_age("--older-than", older_than) if older_than is not None else 0.0
    with context.obj.open() as lake, context.obj.output.working("deciding on held batches"):
        results = act(lake, HeldSelection(table, age_seconds))
    context.obj.output.rows(_RESULT_COLUMNS, [as_record(result) for result in results])
    if not results:
        context.obj.output.say("No batch is held, or none for so long.")
    if any(result.outcome == FAILED for result in results):
        raise typer.Exit(EXIT_INCOMPLETE)
