"""Where the files of a moved table go."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchNamespaceError

from neve.errors import UsageError
from neve.lake.faults import explained
from neve.lake.paths import require_usable_places
from neve.lake.profile import profile_named
from neve.move.paths import below, normal_path

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/|/")


def target_location(
    lake: Lake, target: TableRef, present: MetadataJson | None, wanted: str | None = None
) -> str:
    """Return the directory for a table's files, without a slash at the end. Writes nothing.

    In this order: what was asked for; where the table is that the target catalog has; below its
    namespace's own location; below the catalog's warehouse.

    Raises:
        UsageError: none of them is known, or what was asked for is not where the table is.
    """
    if present is not None:
        if wanted and normal_path(wanted).rstrip("/") != normal_path(present.location):
            raise UsageError(
                f"table {target.name} is at {present.location} already",
                hint="leave --location out: a table that exists keeps its location",
            )
        return present.location
    if wanted:
        return _checked(wanted, "--location")
    profile, catalog = profile_named(lake.settings, target.catalog), lake.catalog(target.catalog)
    *namespace, name = target.identifier
    require_usable_places(*target.identifier)
    with explained(profile):
        try:
            properties = catalog.load_namespace_properties(tuple(namespace))
        except NoSuchNamespaceError:
            properties = {}
    if location := properties.get("location"):
        return f"{location.rstrip('/')}/{name}"
    # A REST server may name the warehouse by itself; what it is given may be a name only.
    for warehouse in (catalog.properties.get("warehouse"), profile.warehouse):
        if warehouse and _ADDRESS.match(warehouse):
            return "/".join((warehouse.rstrip("/"), *namespace, name))
    raise UsageError(
        f"catalog {target.catalog} does not say where table {target.name} is to go",
        hint="say it: --location s3://bucket/path",
    )


def _checked(location: str, option: str) -> str:
    if not _ADDRESS.match(location):
        raise UsageError(
            f"{option} {location} is no address",
            hint="begin it with s3:// or another scheme, or with / for a local directory",
        )
    require_usable_places(location)
    stripped = location.rstrip("/")
    if not stripped.rpartition(":")[2].strip("/"):
        raise UsageError(f"{option} {location} has no directory", hint="name one below it")
    # Engines refuse such names, or take them for another directory.
    if not {"", ".", ".."}.isdisjoint(
        normal_path(stripped).partition(":")[2].lstrip("/").split("/")
    ):
        raise UsageError(
            f"{option} {location} has an empty part, or one of dots only", hint="leave it out"
        )
    return stripped


def require_apart(source: str, target: str) -> None:
    """Refuse to put a table into its source's directory, or around it, in the same store.

    Who removes orphan files of the one would remove files of the other.
    """
    if normal_path(source).rstrip("/") == normal_path(target).rstrip("/") or (
        below(source, target) is not None or below(target, source) is not None
    ):
        raise UsageError(
            f"{target} overlaps with the source's location {source}",
            hint="choose another directory: --location",
        )


def free_location(location: str, table_uuid: str, is_taken: Callable[[str], bool]) -> str:
    """Return the location, or one beside it if it is taken: somebody else's files lie there.

    The same table gets the same one again, so that an interrupted move finds what it has copied.
    """
    free = location
    while is_taken(free):
        digest = hashlib.sha256(f"{table_uuid} {free}".encode()).hexdigest()[:8]
        free = f"{location}-{digest}"
    return free
