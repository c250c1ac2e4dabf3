"""`neve index`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from neve.cli.completion import complete_mirrors
from neve.errors import EXIT_INCOMPLETE

if TYPE_CHECKING:
    from neve.cli.app import Call
    from neve.index.maintain import Refreshed

app = typer.Typer(
    name="index", help="The index of a mirror, by which merges find rows.", no_args_is_help=True
)

_Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="A mirror, as namespace.table.", autocompletion=complete_mirrors
    ),
]


@app.command("build")
def build(context: typer.Context, table: _Table) -> None:
    """Make a mirror's index anew."""
    from neve.index import maintain

    call: Call = context.obj
    with call.open() as lake, call.output.working(f"indexing {table}"):
        lake.profile.require_catalog("an index")
        done = maintain.build(lake, lake.profile.table(table), call.output.progress)
    call.output.record(_record(done))


@app.command("compact")
def compact(context: typer.Context, table: _Table) -> None:
    """Bring a mirror's index up to date and merge all its runs into one."""
    from neve.index import maintain

    call: Call = context.obj
    with call.open() as lake, call.output.working(f"compacting the index of {table}"):
        lake.profile.require_catalog("an index")
        done = maintain.compact(lake, lake.profile.table(table), progress=call.output.progress)
    call.output.record(_record(done))


@app.command("status")
def status(context: typer.Context, table: _Table) -> None:
    """Show what index a mirror has, and how far behind it is."""
    from neve.cli.output import as_record
    from neve.config.merging import INDEXED_ROWS
    from neve.index.status import MISSING
    from neve.index.status import status as index_status

    call: Call = context.obj
    with call.open(reads=True) as lake:
        lake.profile.require_catalog("an index")
        found = index_status(lake, lake.profile.table(table))
    call.output.record(as_record(found))
    if found.state == MISSING:
        call.output.say(
            f"A mirror of fewer than {INDEXED_ROWS:,} rows needs none: merges scan its keys."
        )


@app.command("verify")
def verify(context: typer.Context, table: _Table) -> None:
    """Compare a mirror's index with its rows; ends with 3 if something differs."""
    from neve.cli.output import as_record
    from neve.index.verify import verify as verify_index

    call: Call = context.obj
    with call.open(reads=True) as lake, call.output.working(f"verifying the index of {table}"):
        lake.profile.require_catalog("an index")
        found = verify_index(lake, lake.profile.table(table), call.output.progress)
    record = as_record(found)
    record["seconds"] = round(found.seconds, 2)
    call.output.record({**record, "differences": found.differences})
    if found.differences:
        raise typer.Exit(EXIT_INCOMPLETE)


def _record(done: Refreshed) -> dict[str, Any]:
    root = done.root
    return {
        "table": done.mirror.name,
        "outcome": done.outcome,
        "why": done.why,
        "snapshot_id": root.snapshot_id,
        "entries": root.rows,
        "bytes": root.size,
        "bytes_per_entry": round(root.size / root.rows, 2) if root.rows else None,
        "shards": len(root.shards),
        "files_indexed": done.files_indexed,
        "files_removed": done.files_removed,
        "compacted": done.compacted,
        "seconds": round(done.seconds, 2),
    }
