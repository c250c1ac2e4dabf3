"""The orders go to another catalog, with their history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.cli.demo.orders import TABLE
from neve.errors import CatalogError

if TYPE_CHECKING:
    from neve.api import OpenLake
    from neve.cli.demo.narrator import Narrator

ARCHIVE = "archive"


def tell(lake: OpenLake, narrator: Narrator) -> None:
    """Move the orders, in the place of those of an earlier demo.

    Raises:
        CatalogError: the moved table has other snapshots.
    """
    narrator.step(
        f"neve move takes {TABLE} to another catalog: it copies the files, rewrites every path in "
        "the metadata, proves that the copy is whole, and registers it."
    )
    with narrator.working("moving the orders"):
        (report,) = lake.move(TABLE, to=ARCHIVE, existing="replace")
    snapshots = [
        lake.reader(catalog).read(tuple(TABLE.split("."))).snapshots.keys()
        for catalog in ("lake", ARCHIVE)
    ]
    if snapshots[0] != snapshots[1]:
        raise CatalogError(f"{report.target} has other snapshots than {TABLE}", hint="report it")
    shown = {
        "table": report.target,
        "outcome": report.outcome,
        "snapshots": report.snapshots,
        "copied": report.files_copied,
        "rewritten": report.rewrite_count,
    }
    narrator.show(list(shown), [shown])
