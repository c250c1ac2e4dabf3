"""The `merge` section: which changelogs become which mirrors."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from neve.config.section import ByteCount, Duration, Section

Operation = Literal["snapshot", "insert", "update", "delete", "truncate"]

# The tables beside a mirror are called as it is, with one of these behind it.
TOMBSTONES_SUFFIX, REJECTED_SUFFIX = "_tombstones", "_rejected"
# Below this a scan of the keys takes less time than looking after an index.
INDEXED_ROWS = 200_000


class MergeTableSettings(Section):
    """One changelog and the mirror made of it."""

    namespace: str = Field(min_length=1, description="Namespace of both tables.")
    changelog_table: str = Field(
        min_length=1, description="The table that change events are appended to."
    )
    mirror_table: str = Field(min_length=1, description="The table that is made and kept.")
    primary_keys: tuple[str, ...] = Field(
        min_length=1, description="The columns that tell one row from another."
    )
    sequence_column: tuple[str, ...] = Field(
        min_length=1,
        description="The column, or several, whose greatest value is a key's newest event.",
    )
    operation_column: str = Field("op", description="The column that says what happened.")
    operations: dict[str, Operation] = Field(
        default_factory=dict,
        description=(
            "Further values of that column, such as {upsert: update}. Known are, in any case, "
            "INSERT, UPDATE, DELETE, TRUNCATE, i, u, d, t, and c and r of Debezium."
        ),
    )
    schema_policy: Literal["permissive", "strict"] = Field(
        "permissive",
        description="When a column is renamed or changes its type: set rows aside, or stop.",
    )
    on_recreated: Literal["stop", "truncate"] = Field(
        "stop",
        description=(
            "When the changelog was dropped and created again: stop, or replace the mirror's rows "
            "by the new changelog's, as after a TRUNCATE."
        ),
    )
    batch_size: int | None = Field(
        None, gt=0, description="Most events of one commit; unset means merge.batch_size."
    )
    partition_by: tuple[str, ...] = Field(
        (), description="Partitions of a new mirror, such as day(created_at) or bucket(16, id)."
    )
    include_columns: tuple[str, ...] = Field(
        (), description="Only these columns, with keys and sequence; none means all."
    )
    exclude_columns: tuple[str, ...] = Field((), description="All columns but these.")
    rename: dict[str, str] = Field(
        default_factory=dict,
        description=(
            "Columns that were renamed in the changelog, such as {name: full_name}: the mirror's "
            "column is renamed, too, and keeps its values. Not for keys and sequence."
        ),
    )
    unchanged_marker: str | None = Field(
        None,
        description=(
            "What a source sends for a value it did not read, such as "
            "__debezium_unavailable_value; the row before it says what it is."
        ),
    )
    tombstone_retention: Duration | None = Field(
        None,
        gt=0,
        description=(
            "How long a delete is remembered, such as 30d; unset means for ever. An older event "
            "that arrives after that brings its row back."
        ),
    )

    @field_validator("sequence_column", "primary_keys", "partition_by", mode="before")
    @classmethod
    def _text_is_a_list_of_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_make_sense(self) -> MergeTableSettings:
        if self.changelog_table == self.mirror_table:
            raise ValueError("changelog_table and mirror_table must differ")
        if self.include_columns and self.exclude_columns:
            raise ValueError("set include_columns or exclude_columns, not both")
        needed = {*self.primary_keys, *self.sequence_column, self.operation_column}
        if hidden := needed & set(self.exclude_columns):
            raise ValueError(f"exclude_columns names {sorted(hidden)[0]}, which merging needs")
        if fixed := {*self.primary_keys, *self.sequence_column} & {*self.rename.values()}:
            raise ValueError(
                f"rename names {sorted(fixed)[0]}, and keys and sequence cannot be renamed"
            )
        if len({*self.rename.values()}) < len(self.rename):
            raise ValueError("rename gives two columns the same name")
        for name in ("primary_keys", "sequence_column"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"{name} names a column twice")
        return self


class MergeSettings(Section):
    """From changelogs to mirrors: neve merge."""

    interval: Duration = Field(60.0, gt=0, description="Seconds from one cycle to the next.")
    batch_size: int = Field(
        1_000_000,
        gt=0,
        description="Most events of one commit; a backlog takes several, a first load one.",
    )
    index_cache_bytes: ByteCount = Field(
        4 * 1024**3,
        ge=0,
        description=(
            "How much of indexes in an object store each machine keeps on its disk; 0 keeps none."
        ),
    )
    index_cache_directory: str | None = Field(
        None,
        description=(
            "Where, on the machine that merges and on every one that runs tasks; unset means "
            "neve-index-<user id> below the directory for temporary files."
        ),
    )
    parallel_tables: int = Field(
        2, gt=0, description="Mirrors that are merged at the same time, in one Spark."
    )
    tables: tuple[MergeTableSettings, ...] = Field((), description="The mirrors to keep.")

    @model_validator(mode="after")
    def _mirrors_have_different_names(self) -> MergeSettings:
        mirrors = set()
        for table in self.tables:
            mirror = f"{table.namespace}.{table.mirror_table}"
            if mirror in mirrors:
                raise ValueError(f"two tables have the mirror {mirror}")
            mirrors.add(mirror)
        return self

    @model_validator(mode="after")
    def _side_tables_have_names_of_their_own(self) -> MergeSettings:
        mirrors = [f"{table.namespace}.{table.mirror_table}" for table in self.tables]
        side_tables = {
            mirror + suffix: mirror
            for mirror in mirrors
            for suffix in (TOMBSTONES_SUFFIX, REJECTED_SUFFIX)
        }
        for table in self.tables:
            for setting in ("changelog_table", "mirror_table"):
                name = f"{table.namespace}.{getattr(table, setting)}"
                if name in side_tables:
                    raise ValueError(
                        f"{setting} {name} is a table that the mirror {side_tables[name]} keeps "
                        "beside it; choose another name"
                    )
        return self
