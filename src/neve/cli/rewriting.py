"""`neve rewrite`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from neve.errors import UsageError

if TYPE_CHECKING:
    from neve.cli.app import Call


def rewrite(
    context: typer.Context,
    metadata: Annotated[
        str, typer.Argument(metavar="METADATA", help="The copied metadata file of the table.")
    ],
    sources: Annotated[
        list[str], typer.Option("--from", metavar="PREFIX", help="Where files were; may repeat.")
    ],
    targets: Annotated[
        list[str], typer.Option("--to", metavar="PREFIX", help="Where they are; one for each.")
    ],
    catalog: Annotated[
        Optional[str],  # noqa: UP045 - typer reads it on Python 3.10 too
        typer.Option("--catalog", metavar="NAME", help="Use the storage of another catalog."),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="local|spark", help="Where manifests are rewritten.")
    ] = "local",
) -> None:
    """Rewrite a table that was copied by other means, where it lies; needs no catalog.

    Everything that has paths inside is written anew beside the copied files. Prints the new
    metadata file, which any catalog can register.
    """
    from neve.lake.profile import DEFAULT_CATALOG, profile_named
    from neve.lake.spark_tasks import SparkTasks
    from neve.move.paths import Prefix
    from neve.move.rewrite_copied import rewrite_copied
    from neve.move.spec import Engine
    from neve.move.stores import CatalogFiles
    from neve.move.workers import Processes, SparkWorkers

    call: Call = context.obj
    if len(sources) != len(targets):
        raise UsageError(
            f"{len(sources)} --from and {len(targets)} --to", hint="each --from has its --to"
        )
    known = [each.value for each in Engine]
    if engine not in known:
        raise UsageError(f"--engine {engine} is not known", hint=", ".join(known))
    prefixes = [Prefix(*pair) for pair in zip(sources, targets, strict=True)]
    with call.open(reads=True) as lake, call.output.working(f"rewriting {metadata}"):
        profile = profile_named(lake.settings, catalog or DEFAULT_CATALOG)
        on_spark = engine == Engine.SPARK.value
        with closing(CatalogFiles(profile)) as files, Processes() as processes:
            workers = SparkWorkers(SparkTasks(lake)) if on_spark else processes
            table = rewrite_copied(files, metadata, prefixes, workers)
    for line in table.notes:
        call.output.progress(line)
    counts = {kind.value.replace(" ", "_"): count for kind, count in table.counts.items()}
    call.output.record(
        {
            "metadata_location": table.metadata.path,
            "location": table.document["location"],
            "snapshots": len(table.document.get("snapshots") or ()),
            "rewrite_count": table.rewrite_count,
            "rewritten": counts,
        }
    )
