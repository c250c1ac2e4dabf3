"""Arguments that several commands take: the tables that are meant."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from neve.cli.completion import complete_tables

ChosenTables = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads it on Python 3.10 too
    typer.Argument(
        metavar="[TABLE]...",
        help="Names, patterns such as 'otel.*', or namespaces; none means all tables.",
        autocompletion=complete_tables,
    ),
]
