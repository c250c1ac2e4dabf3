"""The mirror as a table: made once, recognised afterwards, grown with its changelog."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import FixedType, NestedField

from neve.errors import ConfigError
from neve.index.indexed_table import SEQUENCE
from neve.lake.horizons import KEYS, SOURCE
from neve.lake.horizons import SIDE_OF as SIDE_OF
from neve.merge.drift import COLUMNS, Drift, mirrored_fields, origin_ids
from neve.merge.spec import MergeSpec

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.identifier import Identifier
    from neve.merge.checkpoint import MirrorState
    from neve.merge.plan import Look

MERGE_MODE, MERGE_ON_READ = "write.merge.mode", "merge-on-read"
_FIRST_PARTITION_ID = 1000
_NUMBERED = ("bucket", "truncate")
_PARTITION = re.compile(
    r"(?P<transform>bucket|truncate|year|month|day|hour)s?\s*\(\s*((?P<number>\d+)\s*,\s*)?"
    r"(?P<column>[^,()]+?)\s*\)|(?P<identity>[^,()\s]+)"
)


def mirror_schema(spec: MergeSpec, changelog: Schema) -> Schema:
    """Return a new mirror's columns: the changelog's that belong there, all of them nullable."""
    fields = [
        NestedField(field.field_id, field.name, field.field_type, required=False, doc=field.doc)
        for field in mirrored_fields(spec, changelog)
    ]
    return Schema(*fields)


def mirror_properties(spec: MergeSpec, uuid: str) -> dict[str, str]:
    """Return what a new mirror is created with.

    Merge-on-read, since a merge touches few rows of many files; metadata files are deleted with
    the commits that no longer need them, since there is a commit every minute.
    """
    return {
        "format-version": "3",
        MERGE_MODE: MERGE_ON_READ,
        "write.delete.mode": MERGE_ON_READ,
        "write.update.mode": MERGE_ON_READ,
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
        **source_property(spec, uuid),
        KEYS: json.dumps(spec.keys),
        SEQUENCE: json.dumps(spec.sequence),
    }


def source_property(spec: MergeSpec, uuid: str) -> dict[str, str]:
    return {SOURCE: json.dumps({"table": spec.changelog_name, "uuid": uuid})}


def partition_spec(spec: MergeSpec, schema: Schema) -> PartitionSpec:
    """Read `partition_by`.

    Raises:
        ConfigError: a transform or column that does not exist.
    """
    fields: list[PartitionField] = []
    columns = set(schema.column_names)
    for text in spec.partition_by:
        kind, column, transform = _partition(spec, text)
        source = next((field for field in schema.fields if field.name == column), None)
        if source is None:
            raise _unusable(spec, text)
        # PyIceberg cannot read manifests in which Iceberg's Java library wrote a fixed value.
        is_fixed = kind == "identity" and isinstance(source.field_type, FixedType)
        if is_fixed or not transform.can_transform(source.field_type):
            raise ConfigError(
                f"merge.tables: {spec.name}: partition_by {text}: {column} is "
                f"{source.field_type}, which {kind} does not take",
                hint="choose another column or transform",
            )
        name = column if kind == "identity" else f"{column}_{kind}"
        if name in {field.name for field in fields} or (kind != "identity" and name in columns):
            raise ConfigError(
                f"merge.tables: {spec.name}: partition_by {text}: {name} is there already",
                hint="leave it out; a partition needs a name that no other one and no column has",
            )
        number = _FIRST_PARTITION_ID + len(fields)
        fields.append(PartitionField(source.field_id, number, transform, name))
    return PartitionSpec(*fields, spec_id=0)


def _partition(spec: MergeSpec, text: str) -> tuple[str, str, Transform[Any, Any]]:
    match = _PARTITION.fullmatch(text.strip())
    if match is None:
        raise _unusable(spec, text)
    kind = match["transform"] or "identity"
    number = int(match["number"]) if match["number"] else None
    if (kind in _NUMBERED) != bool(number):
        raise _unusable(spec, text)
    transform = parse_transform(f"{kind}[{number}]" if number else kind)
    return kind, match["identity"] or match["column"], transform


def _unusable(spec: MergeSpec, text: str) -> ConfigError:
    return ConfigError(
        f"merge.tables: {spec.name}: partition_by {text} cannot be used",
        hint="write column, bucket(16, column), truncate(8, column), or year, month, day "
        "or hour(column)",
    )


def require_ours(spec: MergeSpec, metadata: TableMetadata) -> None:
    """Refuse a table that is not the mirror of these keys.

    Raises:
        ConfigError: it was not made by Neve, or has other keys or another sequence.
    """
    properties = metadata.properties
    if KEYS not in properties or SOURCE not in properties:
        raise ConfigError(
            f"merge.tables: table {spec.name} exists and was not made by Neve",
            hint="choose another mirror_table, or rename that table",
        )
    for key, wanted, what in (
        (KEYS, spec.keys, "primary_keys"),
        (SEQUENCE, spec.sequence, "sequence_column"),
    ):
        has = tuple(json.loads(properties.get(key, "[]")))
        if has != wanted:
            raise ConfigError(
                f"merge.tables: mirror {spec.name} was made with {what} {', '.join(has)}, and the "
                f"configuration says {', '.join(wanted)}",
                hint=f"set {what} back, or choose another mirror_table",
            )


def require_our_side_table(spec: MergeSpec, identifier: Identifier, table: Table | None) -> None:
    """Refuse a table that has the name of one beside the mirror and was made by somebody else.

    Raises:
        ConfigError: it was not made by Neve.
    """
    if table is not None and SIDE_OF not in table.metadata.properties:
        raise ConfigError(
            f"merge.tables: mirror {spec.name} keeps its own table {'.'.join(identifier)} beside "
            "it, and a table of that name exists that was not made by Neve",
            hint="rename that table, or choose another mirror_table",
        )


def is_recreated(
    spec: MergeSpec, changelog: TableMetadata, mirror: TableMetadata, state: MirrorState
) -> bool:
    """Tell whether the changelog's name is now that of another table than the mirror was made of.

    A mirror for which another name was configured is not meant: that may be a mistake.
    """
    source = json.loads(mirror.properties[SOURCE])
    merged = state.checkpoint.table_uuid if state.checkpoint else source["uuid"]
    return bool(source["table"] == spec.changelog_name and merged != str(changelog.table_uuid))


def origins_of(metadata: TableMetadata, uuid: str) -> dict[int, int]:
    """Return which column of a changelog each column of the mirror came from, by field ids.

    Of another changelog than the one that the mirror was made of, nothing is known.
    """
    source = json.loads(metadata.properties.get(SOURCE, "{}"))
    if source.get("uuid") != uuid:
        return {}
    origins = json.loads(metadata.properties.get(COLUMNS, "{}"))
    return {int(theirs): ours for theirs, ours in origins.items()}


def source_properties(spec: MergeSpec, tables: Look) -> dict[str, str]:
    """Return the properties that remember the changelog, and `origins_of`, as they are to be now.

    The mirror must exist.
    """
    changelog, mirror = tables.changelog, tables.mirror
    if mirror is None:
        raise AssertionError("the mirror was prepared")
    uuid = str(changelog.table_uuid)
    before = origins_of(mirror, uuid)
    ids = origin_ids(tables.drift, changelog.schema(), mirror.schema(), before)
    return {COLUMNS: json.dumps(ids), **source_property(spec, uuid)}


def names_at(metadata: TableMetadata, snapshot_id: int) -> dict[str, str]:
    """Return the columns that a snapshot has, with their present names.

    A snapshot is read with the schema it was written with; columns may have been renamed since.
    """
    snapshot = metadata.snapshot_by_id(snapshot_id)
    schema = snapshot.schema_id if snapshot else None
    written = next((each for each in metadata.schemas if each.schema_id == schema), None)
    present = {field.field_id: field.name for field in metadata.schema().fields}
    fields = (written or metadata.schema()).fields
    return {field.name: present[field.field_id] for field in fields if field.field_id in present}


def changed_schema(drift: Drift) -> Schema:
    """Return the columns that the mirror gets or widens, nullable."""
    return Schema(
        *(
            NestedField(field.field_id, field.name, field.field_type, required=False)
            for field in drift.changed_fields
        )
    )
