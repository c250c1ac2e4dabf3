"""Requests, resources and scopes: where each record stands, and what its row inherits."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from neve.telemetry.attributes import attribute_columns
from neve.telemetry.columns import long_column
from neve.telemetry.equal_keys import Tally
from neve.telemetry.inherited import Inherited
from neve.telemetry.schemas import ENTITY_REF, TIMESTAMP

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Lists, Messages


_SERVICE_COLUMNS = {
    "service_name": "service.name",
    "service_namespace": "service.namespace",
    "service_instance_id": "service.instance.id",
}


class Level:
    """The lists under one field, and the members of all of them in one array."""

    def __init__(self, field: str, lists: Lists) -> None:
        self.field = field
        self.lists = lists
        self.members: Messages = lists.values

    @cached_property
    def owners(self) -> Integers:
        """The number of the list that each member is in."""
        return self.lists.value_parent_indices().to_numpy()

    @cached_property
    def _offsets(self) -> Integers:
        return self.lists.offsets.to_numpy()

    def below(self, field: str) -> Level:
        """Return the lists one level down, under a field of the members."""
        return Level(field, self.members.field(field))

    def path_step(self, member: int) -> str:
        """Write a member's place in its list as a step of a path, such as `spans[3]`."""
        first = self._offsets[self.owners[member]]
        return f"{self.field}[{member - first}]"


class Context:
    """Requests of one signal, down to what a scope lists: log records, spans or metrics."""

    def __init__(
        self, resources: Level, scopes: str, records: str, request_columns: dict[str, Column]
    ) -> None:
        self.resources = resources
        self.scopes = resources.below(scopes)
        self.records = self.scopes.below(records)
        self.request_columns = request_columns
        self.tally = Tally()

    def place(self, record: int) -> tuple[int, str]:
        """Return the position of a record's request, and the record's path in it."""
        scope = int(self.records.owners[record])
        resource = int(self.scopes.owners[scope])
        levels = (self.resources, resource), (self.scopes, scope), (self.records, record)
        path = ".".join(level.path_step(member) for level, member in levels)
        return int(self.resources.owners[resource]), path

    def inherited(self, records: Integers | None = None) -> list[Inherited]:
        """Return what rows inherit: one row for each record, or one for each of `records`."""
        scopes = self.records.owners if records is None else self.records.owners[records]
        resources = self.scopes.owners[scopes]
        requests = self.resources.owners[resources]
        return [
            Inherited(self.request_columns, requests),
            Inherited(self._resource_columns, resources),
            Inherited(self._scope_columns, scopes),
        ]

    @cached_property
    def _resource_columns(self) -> dict[str, Column]:
        resource = self.resources.members.field("resource")
        columns = attribute_columns("resource_attributes", resource.field("attributes"), self.tally)
        attributes = columns["resource_attributes"]
        return {
            **columns,
            **{
                name: pc.map_lookup(attributes, key, "first")
                for name, key in _SERVICE_COLUMNS.items()
            },
            "resource_entity_refs": resource.field("entity_refs").cast(pa.list_(ENTITY_REF)),
            "resource_dropped_attributes_count": long_column(
                resource.field("dropped_attributes_count")
            ),
            "resource_schema_url": self.resources.members.field("schema_url"),
        }

    @cached_property
    def _scope_columns(self) -> dict[str, Column]:
        scope = self.scopes.members.field("scope")
        return {
            "scope_name": scope.field("name"),
            "scope_version": scope.field("version"),
            **attribute_columns("scope_attributes", scope.field("attributes"), self.tally),
            "scope_dropped_attributes_count": long_column(scope.field("dropped_attributes_count")),
            "scope_schema_url": self.scopes.members.field("schema_url"),
        }


def microseconds(nanos: Column) -> Column:
    """Return nanoseconds since 1970 as timestamps, which have microseconds."""
    return pc.divide(nanos, 1000).cast(TIMESTAMP)


def timestamps(inherited: list[Inherited], *times: Column) -> Column:
    """Return the first time of each row that is known; the last is when it was received."""
    received_at = next(
        group.column("received_at") for group in inherited if "received_at" in group.columns
    )
    return pc.coalesce(*map(microseconds, times), received_at)
