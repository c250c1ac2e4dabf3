"""`neve staged`: what audits hold back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.ages import age_text
from neve.cli.ages import parse_age
from neve.cli.completion import complete_batches, complete_held_tables
from neve.cli.confirmation import confirm
from neve.cli.output import as_record
from neve.cli.reading import end_if_failed, name_lake
from neve.errors import EXIT_INCOMPLETE, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neve.cli.output import Output
    from neve.errors import NeveError
    from neve.lake import Lake
    from neve.publish.staged_batches import HeldBatches, HeldResult, HeldSelection
    from neve.publish.staged_list import StagedBatch

app = typer.Typer(help="What audits hold back.", no_args_is_help=True)

_Table = Annotated[str, typer.Argument(help="namespace.table", autocompletion=complete_held_tables)]
_Batch = Annotated[
    str,
    typer.Argument(
        help="The batch's id, as neve staged list shows it.", autocompletion=complete_batches
    ),
]
_AnyTable = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
    typer.Argument(
        help="namespace.table; all telemetry tables without it.",
        autocompletion=complete_held_tables,
    ),
]
_AnyBatch = Annotated[
    Optional[str],  # noqa: UP045 - as above
    typer.Argument(
        help="The batch's id, as neve staged list shows it.", autocompletion=complete_batches
    ),
]
_All = Annotated[bool, typer.Option("--all", help="Every held batch of the table, or of all.")]
_OlderThan = Annotated[
    Optional[str],  # noqa: UP045 - as above
    typer.Option("--older-than", metavar="T", help="Those held for longer than 7d, 12h, 30m."),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
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
    "held_by",
    "counts",
    "unbalanced",
)
# What fits on a terminal of 80 columns.
_SHOWN_COLUMNS = ("table", "batch_id", "rows", "age", "held_by")
_DISCARD = "neve staged discard"
_RESULT_COLUMNS = ("table", "batch_id", "rows", "age_seconds", "outcome", "error")


@app.callback()
def group() -> None:
    """What audits hold back."""


@app.command("list")
def list_batches(context: typer.Context, table: _AnyTable = None) -> None:
    """List the batches that are staged or held, with the audits that hold them and why.

    Ends with 3 if a table cannot be read.
    """
    from neve.publish.staged_list import list_staged

    output = context.obj.output
    failures: dict[str, NeveError] = {}
    with context.obj.open(reads=True) as lake:
        batches = list_staged(lake, table, None if table else failures.__setitem__)
    output.data(_LIST_COLUMNS, [as_record(batch) for batch in batches])
    if batches:
        _show_batches(output, batches)
    elif not failures:
        output.say(f"No batch is staged or held: {name_lake(context.obj.load())}.")
    end_if_failed(output, failures)


def _show_batches(output: Output, batches: Sequence[StagedBatch]) -> None:
    for batch in batches:
        if batch.unbalanced is not None:
            output.say(batch.unbalanced)
    output.show(
        _SHOWN_COLUMNS,
        [
            {
                **as_record(batch),
                "age": age_text(batch.age_seconds),
                "held_by": _held_by(batch),
            }
            for batch in batches
        ],
    )


def _held_by(batch: StagedBatch) -> str:
    """Say for people which audits hold a batch, and how many rows failed each."""
    if batch.unbalanced is not None:
        return "nothing: its counts do not add up"
    if batch.state != "held":
        return "nothing: staged, published by the next run"
    if not batch.held_by:
        return "unknown"
    return "; ".join(f"{each.audit}: {each.failing} of {each.total} rows" for each in batch.held_by)


@app.command()
def show(
    context: typer.Context,
    table: _Table,
    batch: _Batch,
    limit: Annotated[int, typer.Option("--limit", help="How many rows to show.")] = 20,
) -> None:
    """Show the rows of a held batch."""
    from neve.publish.staged_batches import show as show_batch

    with context.obj.open(reads=True) as lake:
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
    from neve.publish.staged_batches import release, release_each

    if batch is None:
        _act_on_selected(context, _selection(table, everything, older_than), release_each)
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
    yes: _Yes = False,
) -> None:
    """Give held batches up; their rows are never published. Asks first.

    Ends with 3 if some failed.
    """
    from neve.publish.staged_batches import DISCARDED, discard_each, find_batch
    from neve.publish.staged_batches import discard as discard_batch

    def discard_if_confirmed(lake: Lake, held: HeldBatches) -> list[HeldResult]:
        if held.batches and not yes:
            many = f"{len(held.batches)} batches, " if len(held.batches) > 1 else ""
            confirm(
                _DISCARD,
                "discard",
                f"Discard {many}{held.rows:,} rows of {', '.join(held.tables)}?",
            )
        return discard_each(lake, held)

    if batch is None:
        _act_on_selected(context, _selection(table, everything, older_than), discard_if_confirmed)
        return
    name = _named_table(table, everything, older_than)
    with context.obj.open() as lake:
        if not yes:
            confirm(
                _DISCARD,
                "discard",
                f"Discard {find_batch(lake, name, batch).rows:,} rows of {name}?",
            )
        discard_batch(lake, name, batch)
    context.obj.output.record({"table": name, "batch_id": batch, "outcome": DISCARDED})


def _named_table(table: str | None, everything: bool, older_than: str | None) -> str:
    if everything or older_than is not None or table is None:
        raise UsageError("name one batch, or say --all or --older-than, not both")
    return table


def _selection(table: str | None, everything: bool, older_than: str | None) -> HeldSelection:
    from neve.publish.staged_batches import HeldSelection

    if not everything and older_than is None:
        raise UsageError(
            "name a table and a batch, or say --all or --older-than", hint="see: neve staged list"
        )
    age_seconds = parse_age("--older-than", older_than) if older_than is not None else 0.0
    return HeldSelection(table, age_seconds)


def _act_on_selected(
    context: typer.Context,
    selection: HeldSelection,
    act: Callable[[Lake, HeldBatches], list[HeldResult]],
) -> None:
    from neve.publish.staged_batches import FAILED, find_held

    with context.obj.open() as lake:
        results = act(lake, find_held(lake, selection))
    context.obj.output.rows(_RESULT_COLUMNS, [as_record(result) for result in results])
    if not results:
        context.obj.output.say("No batch is held, or none for so long.")
    if any(result.outcome == FAILED for result in results):
        raise typer.Exit(EXIT_INCOMPLETE)
