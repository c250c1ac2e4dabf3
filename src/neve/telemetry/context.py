"""Resources and scopes: where each record stands, and what its row takes over from them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from neve.telemetry.attributes import attribute_columns
from neve.telemetry.columns import long_column
from neve.telemetry.equal_keys import Tally
from neve.telemetry.repeat import repeat
from neve.telemetry.schemas import ENTITY_REF, TIMESTAMP

if TYPE_CHECKING:
    from neve.telemetry.arrays import Column, Integers, Lists, Messages


_SERVICE_COLUMNS = {
    "service_name": "service.name",
    "service_namespace": "service.namespace",
    "service_instance_id": "service.instance.id",
}


class Nest:
    """The lists under one field, and the members of them all in one array."""

    def __init__(self, name: str, lists: Lists) -> None:
        self.name = name
        self.lists = lists
        self.members: Messages = lists.values

    @cached_property
    def owners(self) -> Integers:
        """The list each member is in."""
        return self.lists.value_parent_indices().to_numpy()

    def within(self, name: str) -> Nest:
        """The lists one level down."""
        return Nest(name, self.members.field(name))

    def step(self, member: int) -> str:
        """The place of a member in its list, as a path has it."""
        first = self.lists.offsets[int(self.owners[member])].as_py()
        return f"{self.name}[{member - first}]"


class Context:
    """Requests of one signal, down to what a scope lists: log records, spans or metrics."""

    def __init__(self, resources: Nest, scopes: str, records: str, received_at: Column) -> None:
        self.resources = resources
        self.scopes = resources.within(scopes)
        self.records = self.scopes.within(records)
        self.received_at = received_at
        self.tally = Tally()

    def place(self, record: int) -> tuple[int, str]:
        """The position of a record's request, and where the record stands in it."""
        scope = int(self.records.owners[record])
        resource = int(self.scopes.owners[scope])
        steps = self.resources.step(resource), self.scopes.step(scope), self.records.step(record)
        return int(self.resources.owners[resource]), ".".join(steps)

    def columns(self, records: Integers | None = None) -> dict[str, Column]:
        """What rows take over: one row a record, or a row for each of `records`."""
        scopes = self.records.owners if records is None else self.records.owners[records]
        resources = self.scopes.owners[scopes]
        requests = pa.array(self.resources.owners[resources])
        return {
            "received_at": self.received_at.take(requests),
            **repeat(self._resource_columns, resources),
            **repeat(self._scope_columns, scopes),
        }

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


def micros(nanos: Column) -> Column:
    """Nanoseconds since 1970 as timestamps, which have microseconds."""
    return pc.divide(nanos, 1000).cast(TIMESTAMP)


def timestamps(*times: Column) -> Column:
    """The first time that is known: nanoseconds, and at last when the request was received."""
    *nanos, received_at = times
    return pc.coalesce(*map(micros, nanos), received_at)
