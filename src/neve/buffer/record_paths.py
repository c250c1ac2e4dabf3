"""Find and select records of a request by their paths. Pure.

A path is a field for each level, with an index where the field is a list:
`resource_logs[0].scope_logs[1].log_records[2]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from neve.errors import CorruptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEP = re.compile(r"(?P<field>[a-z_]+)(\[(?P<index>[0-9]+)\])?")

Step = tuple[str, int | None]


def parse_path(path: str) -> list[Step]:
    """Return a path's fields and indexes. Raises CorruptionError."""
    steps: list[Step] = []
    for text in path.split("."):
        match = _STEP.fullmatch(text)
        if match is None:
            raise CorruptionError(f"{path} is not the path of a record")
        steps.append((match["field"], int(match["index"]) if match["index"] else None))
    return steps


def record_at(request: Message, path: str) -> Message:
    """Return the record at a path. Raises CorruptionError if there is none."""
    record = request
    for step in parse_path(path):
        record = _child(record, step)
    return record


def select_records(request: Message, paths: Iterable[str]) -> Message:
    """Return a request with only the records at these paths, under their resources and scopes.

    Raises:
        CorruptionError: the request has no record at one of the paths.
    """
    root = _Selection()
    for path in paths:
        node = root
        for step in parse_path(path):
            node = node.children.setdefault(step, _Selection())
        node.is_whole = True
    selected = type(request)()
    _copy_selected(request, selected, root)
    return selected


@dataclass
class _Selection:
    """What is selected of one message: all of it, or some of its children."""

    is_whole: bool = False
    children: dict[Step, _Selection] = field(default_factory=dict)


def _copy_selected(source: Message, target: Message, selection: _Selection) -> None:
    target.CopyFrom(source)
    if selection.is_whole:
        return
    children = {step: _child(source, step) for step in selection.children}
    for name, _ in children:
        target.ClearField(name)
    # In the order of the request: rows keep the order of their records.
    for step in sorted(children, key=lambda step: step[1] or 0):
        name, index = step
        field_of_target = getattr(target, name)
        if index is None:
            field_of_target.SetInParent()
            copy = field_of_target
        else:
            copy = field_of_target.add()
        _copy_selected(children[step], copy, selection.children[step])


def _child(message: Message, step: Step) -> Message:
    name, index = step
    try:
        value: Any = getattr(message, name)
        child = value if index is None else value[index]
    except (AttributeError, IndexError, TypeError) as error:
        raise CorruptionError(f"the request has no {name} {index}") from error
    if name not in message.DESCRIPTOR.fields_by_name or not isinstance(child, Message):
        raise CorruptionError(f"{name} is not a part of a request that holds records")
    return child
