"""The table that a name in a statement means, in Spark's session as it is now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.errors import NotFoundError, UnsupportedError
from neve.lake.identifier import Identifier, parse_identifier
from neve.lake.profile import profiles
from neve.lake.table_reads import file_reader
from neve.lake.table_ref import TableRef
from neve.versions.resolve import resolve_range

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.versions.resolve import Version


def named_table(lake: Lake, name: Identifier) -> TableRef:
    """Return the table that a name would mean: as in Spark, USE completes what it lacks."""
    first, *rest = name
    if rest and first in profiles(lake.settings):
        return TableRef(first, tuple(rest))
    # Not from the session's `catalog`, which may answer for another session of this process.
    (row,) = lake.sql("SELECT current_catalog(), current_schema()").collect()
    catalog, schema = row
    if rest or not schema:
        return TableRef(catalog, name)
    return TableRef(catalog, (*parse_identifier(schema), *name))


def readable_metadata(lake: Lake, ref: TableRef) -> MetadataJson | None:
    """Return a table's metadata; None: there is no such table, or only Spark can read it."""
    if ref.catalog not in profiles(lake.settings):
        return None
    try:
        return lake.reader(ref.catalog).read_document(ref.identifier)
    except (NotFoundError, UnsupportedError):
        return None


def require_versions(lake: Lake, name: Identifier) -> None:
    """Refuse what is no Iceberg table: a view, a metadata table, files.

    Raises:
        UnsupportedError: it is something else.
        NotFoundError: it is nothing.
    """
    kind = lake.relation_kind(name)
    if kind != "Iceberg table":
        raise without_versions(name, "a view" if kind == "view" else kind)


def without_versions(name: Identifier, kind: str) -> UnsupportedError:
    """Say that what a name means has no versions."""
    article = "a " if kind == "metadata table" else ""
    return UnsupportedError(
        f"{'.'.join(name)} has no versions: it is {article}{kind}",
        hint="put the clause after an Iceberg table",
    )


def require_range(
    lake: Lake, ref: TableRef, since: Version | None, until: Version | None, *, only_ends: bool
) -> None:
    """Refuse a range that makes no sense, by the table's metadata alone; no JVM.

    Args:
        only_ends: snapshots between the two ends may have expired.

    Raises:
        NotFoundError: there is no such version or table.
        UsageError: a version makes no sense.
    """
    try:
        metadata = lake.reader(ref.catalog).read_document(ref.identifier)
    except UnsupportedError:
        # Only Spark reads the table.
        return
    read = file_reader(lake, ref)
    resolve_range(ref.name, metadata, since, until, only_ends=only_ends, read=read)
