"""What to say of a table or a namespace that does not exist: the names that are near."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from neve.errors import EmptyLakeError, NotFoundError
from neve.lake.identifier import Identifier, name_of


def missing_table_error(
    catalog: str, identifier: Identifier, tables: Iterable[Identifier]
) -> NotFoundError:
    """Say that a table does not exist, with the nearest names that do."""
    name = name_of(identifier)
    known = [name_of(table) for table in tables]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    # People leave the namespace out, or take the wrong one.
    near += [other for other in known if other.endswith(f".{identifier[-1]}") and other not in near]
    message = f"table {name} does not exist in catalog {catalog}"
    if not known:
        return EmptyLakeError(message, hint="the catalog has no tables yet")
    hint = f"did you mean {' or '.join(near[:3])}?" if near else "run: neve tables"
    return NotFoundError(message, hint=hint)


def missing_namespace_error(
    namespace: Identifier, namespaces: Iterable[Identifier]
) -> NotFoundError:
    """Say that a namespace does not exist, with the nearest names that do."""
    name = name_of(namespace)
    known = [name_of(other) for other in namespaces]
    message = f"namespace {name} does not exist"
    if not known:
        return EmptyLakeError(message, hint="the catalog has no namespaces yet")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:5]
    return NotFoundError(message, hint=f"there are: {', '.join(near)}")
