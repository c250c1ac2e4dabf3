"""What each command may load: importing a library takes longer than most commands run."""

import json
import subprocess
import sys

import pyarrow as pa

import neve
from tests.support.lakes import sqlite_settings

# Libraries that take a tenth of a second or more to import, or that start threads.
SLOW = {
    *("pandas", "numpy", "pyarrow", "pyiceberg", "pyspark", "py4j", "sqlalchemy", "psycopg2"),
    *("duckdb", "sqlglot", "prompt_toolkit", "requests", "urllib3", "boto3", "botocore"),
    *("obstore", "h2", "httptools", "uvloop", "google", "grpc", "ptars", "pyroaring"),
    *("opentelemetry", "sentry_sdk", "prometheus_client", "asyncio", "pydantic", "yaml", "rich"),
}
# In this order, in one process: a command may load what is named here, and what is named above it.
ALLOWED = [
    (["--help"], set()),
    # Typer asks Pydantic what the types of options are.
    (["staged", "list", "--help"], {"pydantic"}),
    (["debug", "failpoints"], {"rich"}),
    (["config", "show"], {"yaml", "asyncio"}),
    (["--version"], set()),
    (["tables"], set()),
    (["describe", "shop.orders"], set()),
    (["staged", "list"], set()),
    (["staged", "list", "shop.orders"], set()),
    (["follow", "list"], set()),
    # Arrow is what answers are made of; it loads NumPy.
    (["sql", "SELECT id FROM shop.orders"], {"duckdb", "sqlglot", "pyarrow", "numpy"}),
    # What Neve's own tables are, and what merges note in them; no Spark.
    (
        ["health"],
        {
            *("google", "opentelemetry", "pyiceberg", "sqlalchemy", "pandas", "pyroaring"),
            *("requests", "urllib3", "obstore", "ptars"),
        },
    ),
]
PROGRAM = """
import contextlib, io, json, sys
from neve.cli.app import run

for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        status = run(arguments)
    print(json.dumps([status, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def test_commands_load_only_what_they_use(tmp_path):
    settings = sqlite_settings(tmp_path)
    with neve.open(settings) as lake:
        lake.catalog().create_namespace("shop")
        lake.catalog().create_table("shop.orders", pa.schema([("id", pa.int64())]))
    catalog = {"type": "sqlite", "uri": settings.catalog.uri, "warehouse": f"{tmp_path}/warehouse"}
    (tmp_path / "neve.yaml").write_text(json.dumps({"catalog": catalog}))
    commands = json.dumps([arguments for arguments, _ in ALLOWED])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, commands],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    allowed: set[str] = set()
    for (arguments, more), line in zip(ALLOWED, done.stdout.splitlines(), strict=True):
        status, modules = json.loads(line)
        allowed |= more
        assert status == 0, arguments
        assert SLOW & set(modules) <= allowed, arguments
