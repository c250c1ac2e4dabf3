"""The `upkeep` section: how long versions and rows stay, and what is done to keep tables fast."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from pydantic import Field, field_validator, model_validator

from neve.config.section import ByteCount, Duration, Section
from neve.limits import MIB

HOUR, DAY = 3600.0, 86_400.0
_PATTERN_LETTERS = frozenset("*?[")


class RowAgeSettings(Section):
    """When rows of a table are deleted because of their age."""

    after: Duration = Field(gt=0, description="The age, such as 30d.")
    column: str | None = Field(
        None,
        description=(
            "The column with a row's time: a timestamp or a date. Unset means the one by whose "
            "day, hour, month or year the table is partitioned."
        ),
    )


class TablePolicySettings(Section):
    """What is different for some tables."""

    retain: Duration | None = Field(
        None, gt=0, description="How long every version stays; unset means upkeep.retain."
    )
    keep_hourly: Duration | None = Field(
        None, ge=0, description="How long one version an hour stays after that; 0 means none."
    )
    keep_daily: Duration | None = Field(
        None, ge=0, description="How long one version a day stays after that; 0 means none."
    )
    expire: bool | None = Field(
        None,
        description=(
            "Whether snapshots are expired. Unset: those of telemetry tables, mirrors, their side "
            "tables and the ledger are, those of changelogs and of all other tables are not."
        ),
    )
    delete_rows_after: RowAgeSettings | None = Field(
        None,
        description=(
            "Rows older than this are deleted, whole data files where possible, such as 30d or "
            "{column: time, after: 30d}. Unset: none."
        ),
    )
    remove_orphans: bool | None = Field(
        None,
        description=(
            "Whether files that no snapshot names are removed. Unset: as for expire, by the kind "
            "of table."
        ),
    )
    compact: bool | None = Field(
        None,
        description=(
            "Whether small files and files with many deleted rows are rewritten. Unset: as for "
            "expire, by the kind of table."
        ),
    )
    zorder: tuple[str, ...] = Field(
        (), description="Columns by which compaction z-orders rows; none means the table's sort."
    )
    statistics: tuple[str, ...] = Field(
        (),
        description=(
            "Columns of which distinct values are counted for Spark's optimizer "
            "(spark.sql.cbo.enabled), whenever the table was written and then left alone for ten "
            "minutes; none means no statistics."
        ),
    )
    target_file_bytes: ByteCount | None = Field(
        None, gt=0, description="Size of compacted files; unset means upkeep.target_file_bytes."
    )

    @field_validator("delete_rows_after", mode="before")
    @classmethod
    def _age_alone_is_enough(cls, value: Any) -> Any:
        return {"after": value} if isinstance(value, (str, int, float)) else value


class UpkeepSettings(Section):
    """Keeping tables small and fast: neve maintain, and a part of neve run."""

    enabled: bool = Field(default=True, description="Whether neve run does upkeep by itself.")
    interval: Duration = Field(
        300.0, gt=0, description="From one look at all tables to the next, in neve run."
    )
    retain: Duration = Field(
        HOUR,
        gt=0,
        description=(
            "Every version stays for so long after it was current. Every commit rewrites the list "
            "of those kept, and with a commit every 2.5 s an hour makes 1440 of them."
        ),
    )
    retain_min: int = Field(
        20, ge=1, description="So many snapshots of a branch are kept, however old they are."
    )
    keep_hourly: Duration = Field(
        DAY,
        ge=0,
        description=(
            "For so long the version at each full hour (UTC) stays, under a tag such as "
            "2026-11-01T13; 0 means none."
        ),
    )
    keep_daily: Duration = Field(
        30 * DAY,
        ge=0,
        description=(
            "For so long the version at each midnight (UTC) stays, under a tag such as 2026-11-01; "
            "0 means none."
        ),
    )
    reader_grace: Duration = Field(
        HOUR,
        ge=0,
        description=(
            "No file is deleted of a version that was current within this time: a query that began "
            "then may still read it. No retention may be shorter."
        ),
    )
    follow_horizon_seconds: Duration = Field(
        7 * DAY,
        gt=0,
        description=(
            "Snapshots that a follower has yet to read are kept up to this age, whatever their "
            "retention; older ones are expired, with a warning that names the follower."
        ),
    )
    orphan_age: Duration = Field(
        3 * DAY,
        ge=DAY,
        description=(
            "Files that no snapshot names are removed at this age. A file is written before the "
            "commit that names it, so this must be longer than the longest job takes."
        ),
    )
    orphan_interval: Duration = Field(
        DAY,
        gt=0,
        description=(
            "From one search for such files to the next, in neve run: each lists the whole table."
        ),
    )
    small_file_bytes: ByteCount = Field(
        32 * MIB, gt=0, description="Data files smaller than this are small: compaction joins them."
    )
    target_file_bytes: ByteCount = Field(
        128 * MIB, gt=0, description="The size that compaction gives to data files."
    )
    min_small_files: int = Field(
        5, ge=2, description="So many small files of a partition are worth a compaction."
    )
    deleted_rows_share: float = Field(
        0.2,
        gt=0,
        le=1,
        description="A data file of whose rows this share is deleted is rewritten.",
    )
    max_bytes: ByteCount | None = Field(
        10 * 1024 * MIB, gt=0, description="At most so much is rewritten in one run; unset: any."
    )
    max_seconds: Duration | None = Field(
        HOUR, gt=0, description="No compaction is begun so long after a run began; unset: any time."
    )
    tables: dict[str, TablePolicySettings] = Field(
        default_factory=dict,
        description=(
            "What is different for some tables, by namespace.table or a pattern such as otel.*; of "
            "several that fit, each key is taken from the longest pattern that sets it."
        ),
    )

    def policy_of(self, table: str) -> TablePolicySettings:
        """Return what is different for a table: each key from the longest pattern that sets it."""
        fitting = [pattern for pattern in self.tables if _fits(pattern, table)]
        chosen: dict[str, Any] = {}
        for pattern in sorted(fitting, key=lambda each: (each == table, len(each), each)):
            policy = self.tables[pattern]
            chosen |= {key: getattr(policy, key) for key in policy.model_fields_set}
        return TablePolicySettings.model_construct(set(chosen), **chosen)

    def has_policy(self, table: str) -> bool:
        """Tell whether `tables` names a table."""
        return any(_fits(pattern, table) for pattern in self.tables)

    def policies_without_table(self, tables: Iterable[str]) -> list[str]:
        """Return a line for each key of `tables` that names none of these tables."""
        names = list(tables)
        return [
            f"upkeep.tables: {pattern} fits no table"
            if _PATTERN_LETTERS & set(pattern)
            else f"upkeep.tables: there is no table {pattern}"
            for pattern in self.tables
            if not any(_fits(pattern, name) for name in names)
        ]

    @property
    def retentions(self) -> dict[str, float]:
        """How long every version stays: each key of this section that says so, with its seconds."""
        return {"retain": self.retain} | {
            f"tables.{name}.retain": policy.retain
            for name, policy in self.tables.items()
            if policy.retain is not None
        }

    @model_validator(mode="after")
    def _readers_outlive_no_retention(self) -> UpkeepSettings:
        for key, value in self.retentions.items():
            check_retention(key, value, self.reader_grace)
        return self


def _fits(pattern: str, table: str) -> bool:
    # Backticks only say where a part ends, which no pattern asks.
    pattern, table = pattern.replace("`", ""), table.replace("`", "")
    return pattern == table or fnmatchcase(table, pattern)


def check_retention(key: str, seconds: float, reader_grace: float) -> None:
    """Refuse a retention that would take files from under a running query. Raises ValueError."""
    if seconds < reader_grace:
        raise ValueError(
            f"{key} ({seconds:g} s) is shorter than reader_grace ({reader_grace:g} s): a query "
            "that began within that time would lose its files; lengthen the one or shorten the "
            "other"
        )
