"""`neve describe`'s history and `neve changes`' refusals, without Spark."""

import json

import pyarrow as pa
import pytest

import neve
from neve.api import OpenLake
from neve.cli.app import run
from tests.support.terminal import run_in_terminal


@pytest.fixture
def snapshot_ids():
    """Make a table with three snapshots, the first of which has a tag; return their ids."""
    with neve.open() as lake:
        lake.catalog().create_namespace("shop")
        rows = pa.table({"id": [1, 2]})
        table = lake.catalog().create_table("shop.orders", rows.schema)
        table.append(rows)
        table.append(rows)
        table.delete()
        ids = [entry.snapshot_id for entry in table.history()]
        table.manage_snapshots().create_tag(ids[0], "v1").commit()
    return ids


def test_describe_shows_a_timeline(capsys, snapshot_ids):
    _, second, third = snapshot_ids
    assert run(["describe", "shop.orders", "--history", "2"]) == 0
    *_, header, newest, older, rest = capsys.readouterr().out.splitlines()
    assert header.split() == ["history", "snapshot", "time", "(UTC)", "operation", "rows", "refs"]
    assert newest.split()[:2] == ["*", str(third)]
    assert newest.split()[4:] == ["delete", "-4", "main"]
    assert older.split()[4:] == ["append", "+2"]
    assert rest == "… 1 older; --history 3 shows all"
    assert run(["describe", "shop.orders"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[4:] == ["append", "+2", "v1"]
    screen = run_in_terminal(["describe", "shop.orders"], columns=80)
    assert any(line.startswith(f"*        {second}") for line in screen.lines)
    assert max(map(len, screen.lines[-4:])) <= 80


def test_describe_gives_programs_all_snapshots(capsys, snapshot_ids):
    first, second, third = snapshot_ids
    assert run(["describe", "shop.orders", "--json"]) == 0
    history = json.loads(capsys.readouterr().out)["history"]
    assert [entry["snapshot_id"] for entry in history] == [third, second, first]
    assert [entry["parent_id"] for entry in history] == [second, first, None]
    assert history[-1]["refs"] == ["v1"]
    assert run(["describe", "shop.orders", "--json", "--history", "1"]) == 0
    assert len(json.loads(capsys.readouterr().out)["history"]) == 1


NO_REF = (
    "shop.orders has no tag or branch '{}', and it is no ISO-8601 time (refs: main, v1; newest: "
)
NO_MODE = "shop.orders: there is no mode 'all' (use one of changes, net, appends)"
REFUSED = [
    (["--since", "7"], 1, "shop.orders has no snapshot 7 (refs: main, v1; newest: "),
    (["--since", "v2"], 2, NO_REF.format("v2")),
    (["--until", "2026-13-01"], 2, NO_REF.format("2026-13-01")),
    (["--since", "main", "--until", "v1"], 2, "shop.orders: the range begins at snapshot"),
    (["--mode", "all"], 2, NO_MODE),
    (["--keys", "id,"], 2, "shop.orders: 'id,' is no list of key columns (write keys as: a, b)"),
    (["--format", "xml"], 2, "--format xml is unknown"),
    (["--format", "parquet"], 2, "--format parquet needs a file"),
    (["--limit", "-1"], 2, "--limit must not be negative"),
]


def test_bad_input_is_refused_before_spark_starts(capsys, monkeypatch, snapshot_ids):
    monkeypatch.setattr(OpenLake, "spark", property(lambda _: pytest.fail("Spark was started")))
    for arguments, status, said in REFUSED:
        assert run(["changes", "shop.orders", *arguments]) == status
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.startswith("neve: ")
        assert captured.err.count("\n") == 1
        assert captured.out == ""


def test_a_table_that_does_not_exist(capsys, snapshot_ids):
    assert run(["changes", "shop.order"]) == 1
    assert "did you mean shop.orders?" in capsys.readouterr().err
    assert run(["describe", "shop.orders", "--history", "-1"]) == 2
    assert "--history must not be negative" in capsys.readouterr().err
