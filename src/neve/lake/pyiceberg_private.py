"""The private functions of PyIceberg that Neve uses; nobody else imports any.

Each says why the public way does not do. `pyiceberg_catalogs.py` overrides what else is private.
`tests/unit/lake/test_pyiceberg_private.py` holds what we rely on, for the pinned version: run it
first after an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    Operation,
)
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.table.update.snapshot import _OverwriteFiles

if TYPE_CHECKING:
    import pyarrow as pa
    import requests
    from pyiceberg.table import Table

__all__ = [
    "overwrite_update",
    "raise_for_answer",
    "schema_without_ids",
]


def overwrite_update(
    table: Table, files: Iterable[DataFile], summary: Mapping[str, str]
) -> AddSnapshotUpdate:
    """Write the manifests of a snapshot that has these data files instead of all present ones.

    Nothing is sent. The public `delete` and `overwrite` send by themselves, and again on a base
    nobody looked at.
    """
    producer = _OverwriteFiles(
        Operation.OVERWRITE,
        table.transaction(),
        table.io,
        snapshot_properties=dict(summary),
        branch=MAIN_BRANCH,
    )
    for task in table.scan().plan_files():
        producer.delete_data_file(task.file)
    for file in files:
        producer.append_data_file(file)
    (added, *_), _ = producer._commit()  # noqa: SLF001 - the only way to build without sending
    if not isinstance(added, AddSnapshotUpdate):
        raise TypeError(added)
    return added


def schema_without_ids(schema: pa.Schema) -> Schema:
    """Convert an Arrow schema whose fields have no ids; the public function asks for ids."""
    return _pyarrow_to_schema_without_ids(schema)


def raise_for_answer(error: requests.HTTPError, errors: Mapping[int, type[Exception]]) -> None:
    """Raise what PyIceberg raises for an answer of a REST catalog, with the server's reason.

    There is no public way: its own requests parse answers into a model without row ids.

    Args:
        errors: what certain statuses mean to this request.
    """
    _handle_non_200_response(error, dict(errors))
