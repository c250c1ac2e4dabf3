"""What a table is to Neve, by its name and its properties."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from neve.config.merging import REJECTED_SUFFIX
from neve.lake.horizons import KEYS, SIDE_OF
from neve.lake.profile import DEFAULT_CATALOG, profile_named

if TYPE_CHECKING:
    from neve.config import Settings
    from neve.lake.identifier import Identifier
    from neve.lake.metadata_json import MetadataJson


class TableKind(str, Enum):
    """Who writes a table."""

    TELEMETRY = "telemetry"
    MIRROR = "mirror"
    SIDE = "side table"
    LEDGER = "ledger"
    CHANGELOG = "changelog"
    OTHER = "other"

    @property
    def is_own(self) -> bool:
        """Whether Neve writes it, so that upkeep needs no permission."""
        return self not in (TableKind.CHANGELOG, TableKind.OTHER)


def table_kind(settings: Settings, identifier: Identifier, metadata: MetadataJson) -> TableKind:
    """Tell what a table is: properties count more than names, which are anybody's to choose."""
    from neve.telemetry.schemas import SCHEMAS

    if KEYS in metadata.properties:
        return TableKind.MIRROR
    if SIDE_OF in metadata.properties:
        return TableKind.SIDE
    if identifier == ("neve", "batches"):
        return TableKind.LEDGER
    name = identifier[-1].removesuffix(REJECTED_SUFFIX)
    profile = profile_named(settings, DEFAULT_CATALOG)
    if identifier[:-1] == profile.namespace(settings.telemetry.namespace) and name in SCHEMAS:
        return TableKind.TELEMETRY
    changelogs = (
        (*profile.namespace(each.namespace), each.changelog_table) for each in settings.merge.tables
    )
    return TableKind.CHANGELOG if identifier in changelogs else TableKind.OTHER
