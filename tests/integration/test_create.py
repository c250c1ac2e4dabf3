"""Two make a table at the same time, on servers."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from neve.lake.create import TableSpec
from tests.support.lakes import TOKEN, postgres_settings, rest_settings
from tests.support.racing import check_racing


@pytest.mark.parametrize("kind", ["postgres", "rest"])
def test_two_make_a_namespace_and_a_table_and_widen_it_at_the_same_time(request, s3, kind):
    if kind == "postgres":
        settings = postgres_settings(request.getfixturevalue("postgres"), s3)
        steps = ["namespace_exists", "create_table"]
    else:
        uri = request.getfixturevalue("token_proxy").uri
        settings = rest_settings(uri, s3, token=TOKEN)
        steps = ["create_namespace", "create_table"]
    schema = pa.schema([pa.field("body", pa.string())])
    identifier = (f"race_{uuid.uuid4().hex[:12]}", "logs")
    wide = schema.append(pa.field("code", pa.int64()))
    check_racing(settings, TableSpec(identifier, schema), TableSpec(identifier, wide), steps)
