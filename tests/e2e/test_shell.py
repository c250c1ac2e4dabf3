"""`neve shell` and `neve sql` without a JVM, typed on a pseudo-terminal."""

import json
import os
import stat
import subprocess
import sys

import pyarrow as pa
import pytest

import neve
from tests.support.command import NEVE
from tests.support.lakes import sqlite_settings
from tests.support.terminal import CTRL_C, CTRL_D, Terminal

ENDLESS = "SELECT sum(range % 7) AS s FROM range(100000000000000)"
# Whoever starts Java fails.
NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}


@pytest.fixture
def directory(tmp_path):
    settings = sqlite_settings(tmp_path)
    with neve.open(settings) as lake:
        lake.catalog().create_namespace("shop")
        rows = pa.table({"id": [1, 2, 3], "city": ["Berlin", "Oslo", None]})
        lake.catalog().create_table("shop.orders", rows.schema).append(rows)
    catalog = {"uri": settings.catalog.uri, "warehouse": settings.catalog.warehouse}
    (tmp_path / "neve.yaml").write_text(json.dumps({"catalog": catalog}))
    return tmp_path


@pytest.fixture
def environment(tmp_path):
    # The pseudo-terminal of the tests does not answer where its cursor is.
    quiet = {"PROMPT_TOOLKIT_NO_CPR": "1"}
    return {**NO_JAVA, **quiet, "XDG_STATE_HOME": str(tmp_path / "state")}


def test_ctrl_c_ends_a_query_at_once(directory, environment):
    arguments = ["sql", "--engine", "duckdb", ENDLESS]
    with Terminal(arguments, cwd=directory, env=environment) as terminal:
        terminal.wait_for("running the statement", seconds=60)
        terminal.type(CTRL_C)
        assert terminal.finish(seconds=20).status == 130


INTERRUPTED_WHILE_DUCKDB_IS_LOADED = """
import signal, sys
from neve.cli.app import run

# In the background of a script, SIGINT is ignored by all that is started there.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "_duckdb":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
print(run(["sql", "SELECT 1"]), "duckdb" in sys.modules)
"""


def test_ctrl_c_while_duckdb_is_loaded_waits_for_that(tmp_path):
    """Its module would end the process with a segmentation fault."""
    command = [sys.executable, "-c", INTERRUPTED_WHILE_DUCKDB_IS_LOADED]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("130 True\n", "neve: interrupted\n")


def enter(terminal, keys, said):
    """Type at the prompt; return when the answer has come and the prompt is back.

    Keys that come in between are the terminal's business: of Ctrl-D it makes another one.
    """
    since = len(terminal.text)
    terminal.type(keys)
    terminal.wait_for("neve>", after=said, since=since, seconds=60)


def test_a_session(directory, environment):
    with Terminal(["shell"], columns=80, cwd=directory, env=environment) as terminal:
        terminal.wait_for("neve>", seconds=60)
        query = "SELECT city,\nid FROM shop.orders\nWHERE id < 3 ORDER BY id;\n"
        enter(terminal, query, "(duckdb)")
        assert "Berlin" in terminal.text
        enter(terminal, "\\d shop.orders\n", "partition_by")
        # Told in one line; the shell goes on.
        enter(terminal, "\\engine duckdb\n", "engine: duckdb")
        enter(terminal, "DELETE FROM shop.orders;\n", "DuckDB only reads")
        enter(terminal, "SELECT nope FROM shop.orders;\n", "Binder Error")
        since = len(terminal.text)
        terminal.type(f"{ENDLESS};\n")
        terminal.wait_for("running the statement", since=since, seconds=60)
        enter(terminal, CTRL_C, "cancelled")
        # A name that is missing is told, too.
        enter(terminal, "SELECT * FROM sho;\n", "table sho does not exist")
        enter(terminal, "\\x\n", "records down the page")
        since = len(terminal.text)
        terminal.type("SELECT max(id) AS highest FROM shop\t")
        terminal.wait_for("shop.orders", since=since, seconds=60)
        enter(terminal, ";\n", "highest  3")
        terminal.type(CTRL_D)
        assert terminal.finish(seconds=60).status == 0
        assert "Traceback" not in terminal.text
    history = directory / "state" / "neve" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    # The tab completed the table's name.
    assert "AS highest FROM shop.orders;" in history.read_text()


def test_statements_from_standard_input(directory, environment):
    script = "SELECT count(*) AS n FROM shop.orders;\nSELECT nope; SELECT 'not reached'"
    done = subprocess.run(
        [NEVE, "shell", "--engine", "duckdb"],
        cwd=directory,
        env=environment,
        check=False,
        input=script,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout.split() == ["n", "3"]
    assert done.stderr.startswith("neve: DuckDB: Binder Error")


def test_a_read_makes_no_lake_and_a_write_does(tmp_path, environment):
    """Spark, which does not start here, would make the catalog first."""
    for statement, made in (("SELECT round(1.5)", []), ("CREATE NAMESPACE a", [".neve"])):
        arguments = [NEVE, "shell"]
        done = subprocess.run(
            arguments, cwd=tmp_path, env=environment, check=False, input=statement.encode()
        )
        assert done.returncode == 1
        assert [path.name for path in tmp_path.iterdir()] == made


@pytest.mark.parametrize(
    ("redirection", "printed"),
    [(">&-", ""), ("2>&- <&-", "x\n\\u2026\n")],
)
def test_closed_streams_and_other_encodings(tmp_path, redirection, printed):
    command = f'"$0" sql "SELECT \'…\' AS x" {redirection}'
    done = subprocess.run(
        ["bash", "-c", command, NEVE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
