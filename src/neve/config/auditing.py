"""Settings of audits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from neve.config.section import Duration, Section


class AuditSettings(Section):
    """One audit of a table's staged rows."""

    name: str = Field(description="Its name in reports.")
    check: Literal[
        "not_null",
        "unique",
        "accepted_values",
        "between",
        "row_count",
        "freshness",
        "expression",
        "function",
    ] = Field(description="What it checks.")
    column: str | None = Field(None, description="The column it looks at.")
    columns: tuple[str, ...] = Field((), description="Several columns (not_null, unique).")
    values: tuple[str | int | float | bool, ...] = Field(
        (), description="What accepted_values accepts; NULL is not asked."
    )
    min: int | float | str | None = Field(None, description="Least value, or least rows.")
    max: int | float | str | None = Field(None, description="Greatest value, or most rows.")
    max_age_seconds: Duration | None = Field(
        None, gt=0, description="How old the newest value of a timestamp may be (freshness)."
    )
    expression: str | None = Field(None, description="A Spark SQL boolean that good rows satisfy.")
    min_ratio: float = Field(
        1.0, ge=0, le=1, description="Share of rows that must satisfy the expression."
    )
    function: str | None = Field(
        None, description="package.module:function of your own; DataFrame in, true or false out."
    )
    on_failure: Literal["block", "warn", "set_aside"] = Field(
        "block",
        description="Hold the whole batch, only say so, or set the failing rows aside.",
    )

    @property
    def all_columns(self) -> tuple[str, ...]:
        return (*((self.column,) if self.column else ()), *self.columns)

    @model_validator(mode="after")
    def _has_what_its_check_needs(self) -> AuditSettings:
        needed = {
            "not_null": (bool(self.all_columns), "column or columns"),
            "unique": (bool(self.all_columns), "column or columns"),
            "accepted_values": (bool(self.column and self.values), "column and values"),
            "between": (
                bool(self.column) and not (self.min is None and self.max is None),
                "column and min or max",
            ),
            "row_count": (not (self.min is None and self.max is None), "min or max"),
            "freshness": (
                bool(self.column) and self.max_age_seconds is not None,
                "column and max_age_seconds",
            ),
            "expression": (bool(self.expression), "expression"),
            "function": (bool(self.function and ":" in self.function), "function"),
        }
        given, wanted = needed[self.check]
        if not given:
            raise ValueError(f"audit {self.name}: {self.check} needs {wanted}")
        of_rows = self.check in ("not_null", "accepted_values", "between", "expression")
        if self.on_failure == "set_aside" and (not of_rows or self.min_ratio < 1):
            raise ValueError(f"audit {self.name}: set_aside is for checks of single rows only")
        return self
