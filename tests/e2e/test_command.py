"""The installed command, as a newcomer types it: each call a process of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.support.buffered import buffered_rows
from tests.support.command import NEVE, neve_serve
from tests.support.pages import Reader, blocks_of, differs
from tests.support.servers import SHORT_LIVED_JAVA
from tests.support.terminal import CTRL_C, Terminal, is_running
from tests.support.wait import until
from tests.support.wheel import ROOT, build_wheel, install_wheel

README = Path(__file__).parents[2] / "README.md"
ENDLESS = "SELECT sum(id % 7) FROM range(100000000000000)"
# A shell without job control makes its background jobs, and what we start in them, ignore Ctrl-C.
INTERRUPTIBLE = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
SENT_AND_KEPT = {
    ("logs", "3000", "3000"),
    ("traces", "2000", "2000"),
    ("metrics_gauge", "4", "4"),
    ("metrics_sum", "4", "4"),
    ("metrics_histogram", "4", "4"),
    ("metrics_exponential_histogram", "4", "4"),
    ("metrics_summary", "1", "1"),
}
ANSWERED = {
    ("payments", "1000", "30"),
    ("shop", "1000", "0"),
    ("checkout", "868", "Zermatt", "1298.6"),
    ("Chamonix", "250", "0.502", "2.639"),
}
EVENTS = {
    ("c", "36", "4", "Dina", "Courmayeur", "updated"),
    ("u", "24", "3", "Cy", "Grindelwald", "replaced:", "34", "is", "newer"),
    ("u", "20", "2", "Bo", "Chamonix", "late:", "the", "row", "has", "22"),
}
SPINNER = set("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
HELD = "otel.logs: audit says_whose_it_is failed for 20 of 20 rows"
MIRROR = {f"shop.customers{suffix}" for suffix in ("", "_changes", "_rejected", "_tombstones")}
TABLES = (
    {f"otel.{table}" for table, _, _ in SENT_AND_KEPT}
    | {"shop.orders", "shop.visits", "neve.batches"}
    | MIRROR
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory, wheel):
    """One demo of the wheel on a terminal of 80 columns, run once and explored by the tests."""
    directory, environment = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("installed")
    installed = install_wheel(wheel, environment / "venv")
    with Terminal(["demo"], columns=80, cwd=directory, program=installed) as terminal:
        yield directory, terminal.finish(seconds=300)
    shutil.rmtree(environment)


def neve(*arguments, cwd, **environment):
    clean = {key: value for key, value in os.environ.items() if key != "NEVE_CONFIG"}
    return subprocess.run(
        [NEVE, *arguments],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_wheel_has_every_file_of_the_package(wheel):
    package = ROOT / "src" / "neve"
    files = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        assert files - set(archive.namelist()) == set()
    needed = {
        "py.typed",
        "lake/log4j2.properties",
        "otlp/libwire_scan.so",
        "telemetry/libpairs.so",
        "cli/demo/client.py",
    }
    assert {f"neve/{name}" for name in needed} <= files


def test_demo_tells_its_story_and_ends_in_results(demo):
    _, screen = demo
    assert screen.status == 0, screen.text
    lines = [line.split() for line in screen.lines]
    read = [line for line in lines if "122060.43" in line]
    assert [line[0] for line in read] == ["Spark", "PyIceberg", "DuckDB"]
    assert all(line[1:] == ["1200", "122060.43", "4"] for line in read)
    spans = [line for line in lines if "426334966724" in line]
    assert [line[0] for line in spans] == ["Spark", "PyIceberg", "DuckDB"]
    assert {tuple(line) for line in lines} >= SENT_AND_KEPT | ANSWERED | EVENTS
    assert ["nightly-report", "5"] in lines  # written directly, beside what was consolidated
    assert "answered 413:\n   the request has more than 1,000,000 records" in screen.text
    warnings = [line for line in screen.lines if "WARN" in line]
    assert [HELD in line for line in warnings] == [True]
    assert "24 of 24 files are small" in screen.text
    assert [line[2:] for line in lines if line[:1] in (["before"], ["after"])] == [
        ["24", "600"],
        ["2", "600"],
    ]
    assert "Exception" not in screen.text
    # Some 40 s on two quiet cores.
    assert screen.seconds < 90


def test_demo_says_what_it_does_and_fits_80_columns(demo):
    _, screen = demo
    doing = {line[2:] for line in screen.lines if line[:1] in SPINNER}
    assert doing >= {"starting Spark", "sending 5,017 records", "merging 6 changes"}
    assert "   100 to 200  ████" in screen.text
    # What is to be copied stands on a line of its own, however long.
    copied = [line for line in screen.lines if line.startswith("  ") and "neve.yaml" in line]
    told = [line.rstrip() for line in screen.lines if line not in copied and "WARN" not in line]
    assert [line for line in told if len(line) > 80] == []


def test_readme_shows_what_the_demo_prints(demo):
    directory, screen = demo
    _, shown, query, answer = [block for block in blocks_of(README) if block.language != "yaml"]
    # On a terminal tables have a line below their head.
    printed = "\n".join(line for line in screen.lines if set(line) - set("─ "))
    assert differs(f"...\n{shown.text}\n...", printed) == ""
    (directory / ".venv").symlink_to(Path(NEVE).parents[1])
    Reader(directory, {}).follow([query, answer])


def test_demo_ends_with_lines_that_send_your_own(demo):
    directory, screen = demo
    ending = screen.text.partition("Now send your own.")[2]
    (request,) = re.findall(r"^  (curl .*?\}')$", ending, re.S | re.M)
    run, ask = (line.strip() for line in ending.splitlines() if " -c neve-" in line)
    assert run.endswith("/neve -c neve-demo/neve.yaml run")
    own = directory / "own"
    own.mkdir()
    with neve_serve(own) as serving:
        sent = request.replace("127.0.0.1:4318", serving.http)
        subprocess.run(["bash", "-c", f"{sent} --fail --silent"], check=True, timeout=60)
        until(lambda: buffered_rows(serving.buffer, "mine")["logs"])
    [row] = buffered_rows(serving.buffer, "mine")["logs"]
    assert row["body"] == "hello"
    asked = subprocess.run(
        ["bash", "-c", f"{ask} --json"], cwd=directory, check=True, capture_output=True, timeout=300
    )
    assert json.loads(asked.stdout) == []


def test_demo_leaves_a_lake_to_explore(demo):
    directory, _ = demo
    shown = neve("-c", "neve-demo/neve.yaml", "tables", "--json", cwd=directory)
    rows = {row["table"]: row["rows"] for row in json.loads(shown.stdout)}
    assert set(rows) == TABLES
    assert rows["otel.logs"] == 3005  # five of them were written directly
    described = neve("-c", "neve-demo/neve.yaml", "describe", "otel.traces", cwd=directory)
    assert "order_id" in described.stdout
    held = neve("-c", "neve-demo/neve.yaml", "staged", "list", "--json", cwd=directory)
    assert [(row["table"], row["rows"]) for row in json.loads(held.stdout)] == [("otel.logs", 20)]
    # All of it was consolidated; of the streams only their names stay, for as long as a request
    # could be sent again.
    buffered = neve("-c", "neve-demo/neve.yaml", "buffer", "status", "--json", cwd=directory)
    streams = json.loads(buffered.stdout)
    assert {(row["segments"], row["state"]) for row in streams} == {(0, "closed")}
    merged = neve("-c", "neve-demo/neve.yaml", "merge", "--once", "--json", cwd=directory)
    assert [(row["table"], row["outcome"]) for row in json.loads(merged.stdout)] == [
        ("shop.customers", "idle")
    ]


def test_demo_touches_no_foreign_directory(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    told = neve("demo", "--dir", "mine", cwd=tmp_path)
    assert told.returncode == 2
    assert "is not empty" in told.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]


ASKING = """
import json, sys, neve, neve.cli.app
statements, printed = json.load(sys.stdin)
with neve.open() as lake:
    rows = [lake.query(statement).num_rows for statement in statements]
    status = neve.cli.app.run(["sql", printed, "--json"])
open("rows.json", "w").write(json.dumps(rows))
sys.exit(status)
"""


def test_documented_queries_run_and_sql_prints_json_and_nothing_else(demo):
    """In one process, so that Spark starts once."""
    directory, _ = demo
    page = Path(__file__).parents[2] / "docs" / "from-request-to-table.md"
    found = re.findall(r"```sql\n(.*?)```", page.read_text(), re.S)
    # Nothing was set aside in the demo, so that there is no table of it.
    statements = [statement for statement in found if "_rejected" not in statement]
    printed = "SELECT count(*) AS orders, map('a', 1) AS m FROM shop.orders"
    ran = subprocess.run(
        [sys.executable, "-c", ASKING],
        cwd=directory,
        env={**os.environ, **SHORT_LIVED_JAVA, "NEVE_CONFIG": "neve-demo/neve.yaml"},
        input=json.dumps([statements, printed]),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [{"orders": 1200, "m": {"a": 1}}]
    rows = json.loads((directory / "rows.json").read_text())
    # The log of a trace is that of one which the demo does not have.
    assert [bool(count) for count in rows] == ["trace_id = " not in one for one in statements]


def test_ctrl_c_while_spark_starts_exits_130_without_a_traceback(tmp_path):
    started = start_sql(ENDLESS, tmp_path)
    assert started.stderr.readline() == "starting Spark\n"
    # The whole foreground group gets the signal, as from a terminal.
    os.killpg(started.pid, signal.SIGINT)
    assert ended(started) == (130, "neve: interrupted\n")


@pytest.mark.timed
def test_the_first_ctrl_c_cancels_a_running_query_within_3_seconds(tmp_path):
    query = ["sql", "--engine", "spark", ENDLESS]
    with Terminal(query, cwd=tmp_path, env=SHORT_LIVED_JAVA) as terminal:
        terminal.wait_for("running the statement")
        until(lambda: runs_a_task(terminal.process.pid), seconds=60)
        pressed = time.monotonic()
        terminal.type(CTRL_C)
        screen = terminal.finish(seconds=60)
        assert time.monotonic() - pressed < 3
        assert screen.status == 130
        assert screen.lines[-1] == "neve: interrupted"
        assert "Traceback" not in screen.text
        # No JVM is left.
        until(lambda: not is_running(terminal.process.pid), seconds=60)


def test_ctrl_c_ends_a_query_whose_rows_nobody_reads(tmp_path):
    started = start_sql("SELECT id FROM range(10000000)", tmp_path)
    assert started.stdout.readline().strip() == "id"
    os.kill(started.pid, signal.SIGINT)
    status, error = ended(started)
    assert (status, error.splitlines()[-1]) == (130, "neve: interrupted")


def start_sql(statement, directory):
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, NEVE, "sql", "--engine", "spark", statement],
        cwd=directory,
        env={**os.environ, **SHORT_LIVED_JAVA},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(started):
    """Return status and errors of a command once it and its JVM have ended."""
    try:
        # Its output is not read: it would wait for ever if it wanted to write more.
        status = started.wait(timeout=120)
        until(lambda: not is_running(started.pid), seconds=60)
        return status, started.stderr.read()
    finally:
        # An endless query must not outlive a failed test.
        if is_running(started.pid):
            os.killpg(started.pid, signal.SIGKILL)
        started.stdout.close()
        started.stderr.close()


def runs_a_task(group):
    """Say whether a JVM of the process group has a thread that runs Spark's tasks."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == group:
                names = [name.read_text() for name in process.glob("task/*/comm")]
                if any(name.startswith("Executor task") for name in names):
                    return True
        except OSError:  # it ended meanwhile
            continue
    return False
