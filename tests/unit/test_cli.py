"""The command line without Spark: options, exit statuses, one-line errors, what is imported."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from neve.cli.app import hoist_global_options, run
from neve.config import load
from neve.config.reference import shown_values
from neve.sizes import size_text
from tests.support.sentry import running_sentry
from tests.support.terminal import run_in_terminal

NEVE = Path(sys.executable).with_name("neve")


def test_help_is_quick():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([NEVE, "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time: what other work there is on the machine is not ours to answer for.
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 0.5


@pytest.mark.parametrize(
    ("given", "hoisted"),
    [
        (["tables", "--json"], ["--json", "tables"]),
        (["sql", "SELECT 1", "-c", "f.yaml", "-v"], ["-c", "f.yaml", "-v", "sql", "SELECT 1"]),
        (["tables", "--config=f"], ["--config=f", "tables"]),
        (["sql", "--", "--json"], ["sql", "--", "--json"]),
        (["tables", "-c"], ["-c", "tables"]),
    ],
)
def test_global_options_may_stand_anywhere(given, hoisted):
    assert hoist_global_options(given) == hoisted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command"),
        (["describe"], "Missing argument"),
        (["-c", "absent.yaml", "tables"], "absent.yaml: cannot be read"),
        (["sql", ""], "no statement"),
        (["sql", "SELECT 1", "--format", "xml"], "--format xml is unknown"),
        (["describe", "a..b"], "is not a table name"),
        (["merge", "--retry-rejected"], "--retry-rejected needs the mirrors' names"),
        (["merge", "a.b", "--retry-rejected", "--rebuild"], "exclude each other"),
        (["merge", "a.b", "--accept-loss"], "--accept-loss is for --rebuild"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(capsys, arguments, said):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("neve: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [["config", "check"], ["consolidate", "--once"]])
def test_a_promoted_column_that_is_taken_exits_2_before_anything_runs(capsys, arguments):
    Path("neve.yaml").write_text("telemetry: {promote: [{attribute: Body, from: resource}]}")
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert "attribute Body would become the column body, which otel.logs has" in captured.err
    assert captured.err.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["neve.yaml"]


def test_config_show_writes_lists_as_the_file_does(capsys):
    Path("neve.yaml").write_text("telemetry: {promote: [{attribute: a, from: scope}]}")
    assert run(["config", "show", "--json"]) == 0
    rows = {row["key"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert rows["telemetry.promote"] == [{"attribute": "a", "from": "scope"}]


def test_unknown_failpoint_is_refused_before_anything_runs(monkeypatch, capsys):
    monkeypatch.setenv("NEVE_FAILPOINT", "no.such")
    assert run(["config", "show"]) == 2
    assert "names no failpoint" in capsys.readouterr().err


def test_config_show_prints_values_with_sources_and_hides_secrets(monkeypatch, capsys):
    Path("neve.yaml").write_text(
        "catalog:\n  type: postgres\n  uri: postgresql://me:pa55word@h/d\n  warehouse: /w\n"
        "  properties: {jdbc.password: pa55word, other: x}\n"
    )
    monkeypatch.setenv("NEVE_STORAGE__ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("NEVE_STORAGE__SECRET_ACCESS_KEY", "verysecret")
    monkeypatch.setenv("NEVE_OBSERVE__SENTRY__DSN", "https://s3ntryk3y@sentry.example.com/1")
    assert run(["config", "show", "--json"]) == 0
    printed = capsys.readouterr().out
    assert "pa55word" not in printed
    assert "verysecret" not in printed
    assert "s3ntryk3y" not in printed
    rows = {row["key"]: (row["value"], row["source"]) for row in json.loads(printed)}
    assert rows["catalog.uri"] == ("postgresql://me:********@h/d", "neve.yaml:3")
    assert rows["catalog.properties.jdbc.password"] == ("********", "neve.yaml:5")
    assert rows["catalog.properties.other"] == ("x", "neve.yaml:5")
    assert rows["storage.secret_access_key"] == ("********", "NEVE_STORAGE__SECRET_ACCESS_KEY")
    assert rows["observe.sentry.dsn"] == ("********", "NEVE_OBSERVE__SENTRY__DSN")
    assert rows["project"] == ("neve", "default")


def test_init_writes_a_file_that_means_the_defaults(capsys):
    before = _values(capsys)
    assert run(["init"]) == 0
    capsys.readouterr()
    assert _values(capsys) == before
    assert run(["init"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert run(["init", "--force"]) == 0
    assert [path.name for path in Path().iterdir()] == ["neve.yaml"]


def _values(capsys):
    assert run(["config", "show", "--json"]) == 0
    return [(row["key"], row["value"]) for row in json.loads(capsys.readouterr().out)]


def test_every_line_of_the_template_is_valid_when_uncommented(monkeypatch):
    from neve.config import load
    from neve.config.reference import template

    for name in ("CATALOG_TOKEN", "CATALOG_CREDENTIAL", "SENTRY_DSN"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("OTLP_TOKEN", "a-token-that-is-long-enough")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    lines = []
    for line in template().splitlines():
        body = line.lstrip()
        key = body.removeprefix("# ").partition(":")[0]
        is_setting = body.startswith("# ") and key.isidentifier() and ": " in f"{body} "
        lines.append(line.replace("# ", "", 1) if is_setting else line)
    # Token and credential belong to type rest, which the example is not.
    kept = [line for line in lines if not line.strip().startswith(("token:", "credential:"))]
    Path("neve.yaml").write_text("\n".join(kept))
    assert load().settings.catalogs["prod"].type == "rest"


def test_init_has_a_valid_example_for_each_list_and_says_what_comes_next(monkeypatch, capsys):
    for name in ("OTLP_TOKEN", "SENTRY_DSN"):
        monkeypatch.setenv(name, "0123456789abcdef")
    assert run(["init"]) == 0
    assert "neve config check" in capsys.readouterr().out
    assert all(source == "default" for *_, source in shown_values(load()))
    lines = Path("neve.yaml").read_text().splitlines()
    without_example = empty_lists("neve.yaml")
    for number, line in enumerate(lines):
        if re.fullmatch(r" *# \w+: [\[{].*", line):
            uncommented = line.replace("# ", "", 1)
            text = "\n".join([*lines[:number], uncommented, *lines[number + 1 :]])
            Path("example.yaml").write_text(text)
            without_example &= empty_lists("example.yaml")
    assert not without_example


def empty_lists(path):
    return {key for key, value, _ in shown_values(load(path)) if value in ((), {})}


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (13_920, "13.9 kB"),
        (99_960, "100 kB"),
        (999_600, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (7_000_000_000_000, "7.0 TB"),
    ],
)
def test_sizes_for_people(size, text):
    assert size_text(size) == text


def test_tables_and_describe_fit_the_screen_and_no_spinner_stands_between_their_lines():
    _make_table("otel.metrics_exponential_histogram")
    listed = run_in_terminal(["tables"], columns=80)
    assert max(map(len, listed.lines)) <= 80
    row = next(line for line in listed.lines if line.startswith("otel."))
    assert re.fullmatch(r"otel.metrics_exponential_histogram +2 +1 +\d+ B +1 +\d+s", row.strip())
    described = run_in_terminal(["describe", "otel.metrics_exponential_histogram"], columns=80)
    first = next(i for i, line in enumerate(described.lines) if line.startswith("table "))
    assert not any("reading the catalog" in line for line in described.lines[first:])


def test_tables_and_describe_work_without_a_jvm(capsys):
    assert run(["tables"]) == 0
    assert "no tables yet" in capsys.readouterr().out
    assert run(["tables", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    _make_table("shop.orders")
    assert run(["tables", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["table"], row["rows"], row["snapshots"]) == ("shop.orders", 2, 1)
    assert run(["describe", "shop.orders", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in shown["columns"]] == ["id", "name"]
    assert shown["refs"] == {"main": shown["current_snapshot_id"]}
    assert run(["describe", "shop.orders"]) == 0
    assert "location" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe", "shop.order"], "did you mean shop.orders?"),
        (["describe", "orders"], "did you mean shop.orders?"),
        (["describe", "nowhere.else"], "run: neve tables"),
        (["tables", "shap"], "there are: shop"),
    ],
)
def test_missing_names_are_answered_with_near_ones(capsys, arguments, said):
    _make_table("shop.orders")
    assert run(arguments) == 1
    error = capsys.readouterr().err
    assert "does not exist" in error
    assert said in error


def test_describe_names_the_columns_that_spark_reads_by_row(capsys):
    nested = {"tags": [[("a", "b")]], "parts": [["x"]], "place": [{"town": "Graz"}]}
    tags = pa.map_(pa.string(), pa.string())
    arrays = [pa.array(nested["tags"], tags), *map(pa.array, (nested["parts"], nested["place"]))]
    _make_table("shop.nested", pa.table([pa.array([1]), *arrays], ["id", *nested]))
    assert run(["describe", "shop.nested", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["read_by_row"] == list(nested)
    assert run(["describe", "shop.nested"]) == 0
    assert re.search(r'read_by_row +\["tags", "parts", "place"\]', capsys.readouterr().out)


def _make_table(name, rows=None):
    import neve

    with neve.open() as lake:
        catalog = lake.catalog()
        catalog.create_namespace_if_not_exists(name.split(".")[0])
        rows = pa.table({"id": [1, 2], "name": ["a", "b"]}) if rows is None else rows
        catalog.create_table(name, rows.schema).append(rows)


def test_catalog_type_none_refuses_what_needs_one(monkeypatch, capsys):
    monkeypatch.setenv("NEVE_CATALOG__TYPE", "none")
    assert run(["tables"]) == 1
    assert "listing tables needs a catalog" in capsys.readouterr().err


def test_corrupt_catalog_file_is_said(capsys):
    Path(".neve").mkdir()
    Path(".neve/catalog.db").write_bytes(b"this is no database" * 100)
    assert run(["tables"]) == 1
    assert "is corrupt" in capsys.readouterr().err


def test_catalog_in_an_impossible_place_is_said(monkeypatch, capsys):
    Path("file").write_text("")
    monkeypatch.setenv("NEVE_CATALOG__URI", "sqlite:///file/catalog.db")
    assert run(["tables"]) == 1
    assert "file/catalog.db: Not a directory (check catalog.uri" in capsys.readouterr().err


def test_interrupt_exits_130_without_a_traceback(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("neve.config.load", interrupted)
    assert run(["config", "show"]) == 130
    assert capsys.readouterr().err == "neve: interrupted\n"


def test_shell_completion_is_offered():
    shown = subprocess.run(
        [NEVE, "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_NEVE_COMPLETE" in shown.stdout


def test_ctrl_c_in_a_finalizer_is_not_lost():
    # Python cannot raise there, reports the interrupt as ignored, and would go on.
    program = """
import signal, time
from neve.cli import app

signal.signal(signal.SIGINT, signal.default_int_handler)

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def run(arguments):
    try:
        Finalized()
        time.sleep(60)
    except KeyboardInterrupt:
        return 130

app.run = run
app.main([])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "")


def test_a_command_that_fails_is_told_to_sentry_and_a_wrong_call_is_not(monkeypatch, capsys):
    with running_sentry() as sentry:
        monkeypatch.setenv("NEVE_OBSERVE__SENTRY__DSN", sentry.dsn)
        assert run(["describe", "nowhere.else"]) == 1
        assert run(["tables", "--nonsense"]) == 2
        assert run(["describe", "a..b"]) == 2
    [event] = sentry.events
    assert event["tags"] == {"service": "neve", "part": "describe", "code": "not_found"}
    assert "nowhere" not in sentry.text


def test_an_internal_error_is_told_to_sentry_and_raised(monkeypatch):
    def broken(*_):
        raise KeyError("a defect")

    monkeypatch.setattr("neve.lake.Lake.tables", broken)
    with running_sentry() as sentry:
        monkeypatch.setenv("NEVE_OBSERVE__SENTRY__DSN", sentry.dsn)
        with pytest.raises(KeyError):
            run(["tables"])
    [event] = sentry.events
    assert event["tags"]["code"] == "internal"
