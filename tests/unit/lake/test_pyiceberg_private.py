"""What Neve relies on in PyIceberg and PyIceberg does not promise.

After an upgrade of PyIceberg: a failure here names what changed. Read the new version's code, adapt
`lake/pyiceberg_private.py` or `lake/pyiceberg_catalogs.py`, then this test, and only then the
version below.
"""

import ast
import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyiceberg.catalog.rest.response as rest_response
import pyiceberg.io.pyarrow as pyarrow_io
import pytest
from pyiceberg.catalog import MetastoreCatalog, delete_files
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update.snapshot import _OverwriteFiles

import neve
from neve.lake import pyiceberg_private as private

CHANGED = "PyIceberg changed: adapt lake/pyiceberg_private.py, then this test"
SOURCE = Path(neve.__file__).parent

SIGNATURES = {
    _OverwriteFiles.__init__: [
        "self",
        "operation",
        "transaction",
        "io",
        "commit_uuid",
        "snapshot_properties",
        "branch",
    ],
    _OverwriteFiles._commit: ["self"],
    delete_files: ["io", "files_to_delete", "file_type"],
    pyarrow_io._determine_partitions: ["spec", "schema", "arrow_table"],
    MetastoreCatalog._update_and_stage_table: [
        "self",
        "current_table",
        "table_identifier",
        "requirements",
        "updates",
    ],
    RestCatalog._load_file_io: ["self", "properties", "location"],
    RestCatalog._split_identifier_for_path: ["self", "identifier", "kind"],
    RestCatalog._refresh_token: ["self"],
    RestCatalog._resolve_storage_credentials: ["storage_credentials", "location"],
    RestCatalog.url: ["self", "endpoint", "prefixed", "kwargs"],
    rest_response._handle_non_200_response: ["exc", "error_handler"],
    SqlCatalog._create_table_row: ["self", "namespace", "table_name", "metadata_location"],
    SqlCatalog._iceberg_type_filter: ["self"],
    SqlCatalog.commit_table: ["self", "table", "requirements", "updates"],
}


def test_the_version_is_the_one_that_was_read():
    assert version("pyiceberg") == "0.12.0", CHANGED


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda one: one.__qualname__)
def test_signatures(function):
    assert list(inspect.signature(function).parameters) == SIGNATURES[function], CHANGED


def test_nobody_else_uses_what_is_private():
    """Neither by import nor as an attribute of a module or class of PyIceberg."""
    for file in SOURCE.rglob("*.py"):
        if file.name == "pyiceberg_private.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg"):
                private_names = [name.name for name in node.names if name.name.startswith("_")]
                assert not private_names, f"{file}: import them in pyiceberg_private.py"


def test_a_schema_without_ids_is_converted():
    schema = private.schema_without_ids(pa.schema([("a", pa.int64()), ("b", pa.list_(pa.int32()))]))
    assert [field.name for field in schema.fields] == ["a", "b"], CHANGED
    assert {field.field_id for field in schema.fields} == {-1}, CHANGED


def test_tasks_load_no_catalog_and_no_driver():
    """The executors of a cluster have neither."""
    absent = ("sqlalchemy", "psycopg2", "pyspark")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
        "import neve.lake.data_files, neve.lake.spark_tasks, neve.consolidate.spark"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_sessions_are_made_where_time_outs_are_put_on_them():
    source = inspect.getsource(RestCatalog._create_session)
    # Headers come first: from then on requests are sent, the one for a token among them.
    assert source.index("_config_headers(") < source.index("_create_legacy_oauth2"), CHANGED
    assert source.index("_create_legacy_oauth2") < source.index("_init_sigv4("), CHANGED
