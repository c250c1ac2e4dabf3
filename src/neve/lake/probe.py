"""Try a configuration for real: each catalog, its storage, and Spark on top of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.io import load_file_io

from neve.errors import StorageError
from neve.lake.catalog import open_catalog
from neve.lake.lake import Lake
from neve.lake.profile import CatalogProfile, profiles

if TYPE_CHECKING:
    from neve.config import Settings

Probe = Callable[[], str]


def checks(settings: Settings, report: Callable[[str], None]) -> Iterator[tuple[str, Probe]]:
    """Yield what is checked and the function that does it, which raises a `NeveError`."""
    for profile in profiles(settings).values():
        if profile.has_catalog:
            yield f"catalog {profile.name}", partial(probe_catalog, profile)
        yield f"storage {profile.name}", partial(probe_storage, profile)
    yield "spark", partial(probe_spark, settings, report)


def probe_catalog(profile: CatalogProfile) -> str:
    catalog = open_catalog(profile)
    try:
        return f"{profile.settings.type} answers with {len(catalog.list_namespaces())} namespaces"
    finally:
        catalog.close()


def probe_storage(profile: CatalogProfile) -> str:
    """Write, read and delete one small file in the warehouse; leaves nothing behind."""
    if "://" not in (profile.warehouse or ""):
        return "not tried: the catalog's server decides where tables lie"
    location = f"{str(profile.warehouse).rstrip('/')}/.neve-check-{uuid.uuid4().hex}"
    properties = profile.pyiceberg_properties()
    try:
        files = load_file_io(properties, location)
        with files.new_output(location).create() as file:
            file.write(b"neve")
        try:
            with files.new_input(location).open() as file:
                if file.read() != b"neve":
                    raise StorageError(f"{location} reads back other bytes than were written")
        finally:
            files.delete(location)
    except OSError as error:
        reason = " ".join(str(error).split())
        raise StorageError(
            f"the warehouse {profile.warehouse} is not writable: {reason}",
            hint="check catalog.warehouse, the storage section and the permissions there",
        ) from error
    return f"{profile.warehouse} can be written, read and deleted from"


def probe_spark(settings: Settings, report: Callable[[str], None]) -> str:
    with Lake(settings, report) as lake:
        statement = "SHOW NAMESPACES" if lake.profile.has_catalog else "SELECT 1"
        lake.query(statement)
        return f"Spark {lake.spark.version} on {lake.spark.sparkContext.master} sees the catalog"
