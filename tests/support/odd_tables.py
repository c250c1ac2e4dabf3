"""Tables of which something is odd, made from a real one by rewriting its metadata file."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

ROWS = pa.table({"id": [1, 2, 3]})


def without_uuid(document):
    """Leave the id out, as the specification allows in format v1."""
    del document["table-uuid"]
    as_v1(document)


def as_v1(document):
    document["format-version"] = 1
    for key in ("last-sequence-number", "refs"):
        document.pop(key, None)
    for snapshot in document.get("snapshots", ()):
        snapshot.pop("sequence-number", None)


def no_object(document):
    return []


def of_format_4(document):
    document["format-version"] = 4


def garbage_list(document):
    path = Path(urlsplit(document["snapshots"][-1]["manifest-list"]).path)
    path.write_bytes(b"garbage" * 100)


def unknown_type(document):
    document["schemas"][-1]["fields"][0]["type"] = "tensor(3)"


def no_location(document):
    document["location"] = None


def text_for_a_number(document):
    document["snapshots"][-1]["summary"]["total-records"] = "many"


ODDITIES = {
    each.__name__: each
    for each in (
        without_uuid,
        no_object,
        of_format_4,
        garbage_list,
        unknown_type,
        no_location,
        text_for_a_number,
    )
}


def make_table(catalog, identifier, properties=None):
    """Make a table with three rows."""
    catalog.create_namespace_if_not_exists(identifier[:-1])
    table = catalog.create_table(identifier, ROWS.schema, properties=properties or {})
    table.append(ROWS)
    return table


def make_odd(table, oddity):
    """Change the metadata file that the catalog names for a table."""
    path = Path(urlsplit(table.metadata_location).path)
    document = json.loads(path.read_bytes())
    changed = ODDITIES[oddity](document)
    path.write_text(json.dumps(document if changed is None else changed))
