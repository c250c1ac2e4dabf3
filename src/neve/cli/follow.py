"""`neve follow`: who follows which table, and how far behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.ages import age_text
from neve.cli.completion import complete_tables
from neve.cli.output import as_record
from neve.cli.reading import end_if_failed, name_lake

if TYPE_CHECKING:
    from neve.cli.app import Call
    from neve.errors import NeveError
    from neve.lake.followers import FollowerState

app = typer.Typer(help="Who follows which table, and how far behind.", no_args_is_help=True)

_AnyTable = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
    typer.Argument(help="namespace.table; all tables without it.", autocompletion=complete_tables),
]
_Table = Annotated[str, typer.Argument(help="namespace.table", autocompletion=complete_tables)]
_Name = Annotated[str, typer.Argument(help="The follower, as neve follow list shows it.")]
_COLUMNS = (
    "table",
    "name",
    "snapshot_id",
    "at",
    "branch",
    "target",
    "lag_commits",
    "lag_seconds",
    "lag_rows",
)
# What fits on a terminal of 80 columns.
_SHOWN = ("table", "name", "snapshot_id", "commits behind", "rows", "since")


@app.callback()
def group() -> None:
    """Who follows which table, and how far behind."""


@app.command("list")
def list_followers(context: typer.Context, table: _AnyTable = None) -> None:
    """List followers: their position, and the commits, rows and time they are behind.

    Ends with 3 if a table cannot be read.
    """
    call: Call = context.obj
    failures: dict[str, NeveError] = {}
    with call.open(reads=True) as lake:
        followers = lake.followers(table, failures.__setitem__)
    call.output.data(_COLUMNS, [as_record(each) for each in followers])
    if followers:
        call.output.show(_SHOWN, [_shown(each) for each in followers])
    elif not failures:
        call.output.say(f"Nobody follows a table: {name_lake(call.load())}.")
    end_if_failed(call.output, failures)


@app.command("drop")
def drop(context: typer.Context, table: _Table, name: _Name) -> None:
    """Forget a follower. The table that it kept stays as it is.

    It prints the position, at which another follower can begin.
    """
    call: Call = context.obj
    with call.open() as lake:
        dropped = lake.drop_follower(table, name)
    call.output.record(as_record(dropped))


def _shown(follower: FollowerState) -> dict[str, Any]:
    if follower.lag_commits is None:
        behind, rows, since = "not an ancestor", "", ""
    else:
        behind = str(follower.lag_commits)
        rows = "?" if follower.lag_rows is None else str(follower.lag_rows)
        since = age_text(follower.lag_seconds) if follower.lag_seconds else ""
    return {
        "table": follower.table,
        "name": follower.name,
        "snapshot_id": follower.snapshot_id,
        "commits behind": behind,
        "rows": rows,
        "since": since,
    }
