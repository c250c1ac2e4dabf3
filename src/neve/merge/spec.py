"""What one mirror is made of, as a frozen request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from neve.config.merging import REJECTED_SUFFIX, TOMBSTONES_SUFFIX
from neve.errors import UsageError
from neve.lake.identifier import Identifier, parse_identifier

if TYPE_CHECKING:
    from neve.config import Settings
    from neve.config.merging import MergeTableSettings

SNAPSHOT, INSERT, UPDATE, DELETE, TRUNCATE = "snapshot", "insert", "update", "delete", "truncate"

# Compared in lower case: plain words, their first letters, and Debezium's.
OPERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "insert": INSERT,
        "update": UPDATE,
        "delete": DELETE,
        "truncate": TRUNCATE,
        "i": INSERT,
        "u": UPDATE,
        "d": DELETE,
        "t": TRUNCATE,
        "c": INSERT,
        "r": SNAPSHOT,
    }
)


@dataclass(frozen=True)
class MergeSpec:
    """One changelog, one mirror, and how events become rows."""

    changelog: Identifier
    mirror: Identifier
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    operation_column: str = "op"
    operations: Mapping[str, str] = field(default_factory=lambda: OPERATIONS)
    strict: bool = False
    truncates_if_recreated: bool = False
    batch_size: int = 1_000_000
    partition_by: tuple[str, ...] = ()
    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    # Old name → new name, of columns that were renamed in the changelog.
    rename: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unchanged_marker: str | None = None
    tombstone_retention_seconds: float | None = None

    @property
    def name(self) -> str:
        """The mirror's name, by which people and reports know the pair."""
        return ".".join(self.mirror)

    @property
    def changelog_name(self) -> str:
        return ".".join(self.changelog)

    @property
    def tombstones(self) -> Identifier:
        return (*self.mirror[:-1], self.mirror[-1] + TOMBSTONES_SUFFIX)

    @property
    def rejected(self) -> Identifier:
        return (*self.mirror[:-1], self.mirror[-1] + REJECTED_SUFFIX)

    def renamed(self, column: str) -> str:
        """Return the present name of a column that was renamed, perhaps more than once."""
        passed: set[str] = set()
        while column in self.rename and column not in passed:
            passed.add(column)
            column = self.rename[column]
        return column

    def takes(self, column: str) -> bool:
        """Tell whether a column of the changelog belongs into the mirror."""
        if column in self.keys or column in self.sequence:
            return True
        if column == self.operation_column or column in self.exclude:
            return False
        return not self.include or column in self.include


def merge_spec(table: MergeTableSettings, batch_size: int) -> MergeSpec:
    """Read one entry of `merge.tables`."""
    namespace = parse_identifier(table.namespace)
    further = {value.lower(): operation for value, operation in table.operations.items()}
    return MergeSpec(
        changelog=(*namespace, table.changelog_table),
        mirror=(*namespace, table.mirror_table),
        keys=table.primary_keys,
        sequence=table.sequence_column,
        operation_column=table.operation_column,
        operations=MappingProxyType({**OPERATIONS, **further}),
        strict=table.schema_policy == "strict",
        truncates_if_recreated=table.on_recreated == "truncate",
        batch_size=table.batch_size or batch_size,
        partition_by=table.partition_by,
        include=frozenset(table.include_columns),
        exclude=frozenset(table.exclude_columns),
        rename=MappingProxyType(dict(table.rename)),
        unchanged_marker=table.unchanged_marker,
        tombstone_retention_seconds=table.tombstone_retention,
    )


def merge_specs(settings: Settings, names: tuple[str, ...] = ()) -> list[MergeSpec]:
    """Return the configured mirrors, or the named ones of them.

    Raises:
        UsageError: a name that no mirror has.
    """
    specs = [merge_spec(table, settings.merge.batch_size) for table in settings.merge.tables]
    if not names:
        return specs
    known = {spec.mirror: spec for spec in specs}
    chosen = []
    for name in names:
        identifier = parse_identifier(name)
        if identifier not in known:
            hint = ", ".join(spec.name for spec in specs) or "none yet: see merge.tables"
            raise UsageError(f"merge.tables has no mirror {name}", hint=f"there are: {hint}")
        chosen.append(known[identifier])
    return chosen
