"""What to say of a table or a namespace that does not exist: the names that are near."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from neve.errors import NotFoundError
from neve.lake.identifier import Identifier


def missing_table_error(
    catalog: str, identifier: Identifier, tables: Iterable[Identifier]
) -> NotFoundError:
    """Say that a table does not exist, with the nearest names that do."""
    name = ".".join(identifier)
    known = [".".join(table) for table in tables]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    # People leave the namespace out, or take the wrong one.
    near += [other for other in known if other.endswith(f".{identifier[-1]}") and other not in near]
    if near:
        hint = f"did you mean {' or '.join(near[:3])}?"
    else:
        hint = "run: neve tables" if known else "the catalog has no tables yet"
    return NotFoundError(f"table {name} does not exist in catalog {catalog}", hint=hint)


def missing_namespace_error(
    namespace: Identifier, namespaces: Iterable[Identifier]
) -> NotFoundError:
    """Say that a namespace does not exist, with the nearest names that do."""
    name = ".".join(namespace)
    known = [".".join(other) for other in namespaces]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:5]
    hint = f"there are: {', '.join(near)}" if near else "the catalog has no namespaces yet"
    return NotFoundError(f"namespace {name} does not exist", hint=hint)
