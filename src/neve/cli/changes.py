"""`neve changes`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from neve.cli.completion import complete_tables

if TYPE_CHECKING:
    from neve.cli.app import Call

_VERSION_HELP = "a snapshot id, a tag, a branch or a time (ISO 8601, UTC)"


def changes(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="namespace.table", autocompletion=complete_tables)],
    since: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option(metavar="V", help=f"Changes after this version [all]: {_VERSION_HELP}."),
    ] = None,
    until: Annotated[
        Optional[str],  # noqa: UP045 - as above
        typer.Option(metavar="V", help="Changes up to this version, included [the current one]."),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="changes: each change of each commit; net: what differs between the two versions; "
            "appends: added rows, an error if there are other changes."
        ),
    ] = "changes",
    keys: Annotated[
        Optional[str],  # noqa: UP045 - as above
        typer.Option(
            metavar="COLUMNS",
            help="Columns that identify a row, such as a,b [those that the table declares].",
        ),
    ] = None,
    output_format: Annotated[
        Optional[str],  # noqa: UP045 - as above
        typer.Option("--format", help="table, vertical, json, jsonl, csv or parquet."),
    ] = None,
    limit: Annotated[
        Optional[int],  # noqa: UP045 - as above
        typer.Option(help="Print this many rows at most [40 on a terminal, all elsewhere]."),
    ] = None,
    result_file: Annotated[
        Optional[Path],  # noqa: UP045 - as above
        typer.Option("-o", "--output", metavar="FILE", help="Write the result there."),
    ] = None,
) -> None:
    """Show the rows of a table that changed between two versions.

    With a limit, and on a terminal, the oldest commits come first.
    """
    from neve.cli.results import Options, print_answer, rows_wanted
    from neve.query.spark import read_frame
    from neve.versions.arguments import parse_keys, parse_mode, parse_version
    from neve.versions.named_tables import require_range

    call: Call = context.obj
    options = Options(output_format, limit, result_file)
    wanted = rows_wanted(call.output, options)
    start, end = (None if text is None else parse_version(text) for text in (since, until))
    key_columns = None if keys is None else parse_keys(table, keys)

    def make_frame() -> Any:
        rows = lake.changes(table, start, end, parse_mode(table, mode), key_columns)
        # All rows are not sorted: Spark would read them twice.
        return rows if wanted is None else _oldest_first(rows, key_columns or ())

    with call.open(reads=True) as lake:
        with call.output.working("reading the changes"):
            # What is typed wrong is told before Spark starts.
            require_range(lake, lake.ref(table), start, end, only_ends=mode == "net")
            parse_mode(table, mode)
            answer = read_frame(lake, make_frame, wanted)
        print_answer(answer, call.output, options)


def _oldest_first(rows: Any, keys: Sequence[str]) -> Any:
    """Sort changes by their commits, and the two halves of an update one after the other."""
    from neve.lake.identifier import quote_identifier

    columns = [quote_identifier((key,)) if key in rows.columns else key for key in keys]
    commit = ("_commit_timestamp", "_commit_snapshot_id")
    return rows.orderBy(*commit, *columns, rows["_change_type"].desc())
