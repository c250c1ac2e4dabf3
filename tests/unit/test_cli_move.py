"""`neve move`, typed: what it prints, how it ends, and that a killed one goes on."""

import json
import os
import signal
import subprocess

import pytest

import neve
from neve.cli.app import run
from neve.failpoints import ENVIRONMENT_VARIABLE
from neve.lake.table_ref import TableRef
from tests.support.command import NEVE
from tests.support.moved_tables import make_by_pyiceberg

CONFIG = {
    "catalog": {"type": "sqlite"},
    "catalogs": {
        "archive": {
            "type": "sqlite",
            "uri": "sqlite:///archive/catalog.db",
            "warehouse": "archive/warehouse",
        },
        "bucket": {
            "type": "s3tables",
            "warehouse": "arn:aws:s3tables:eu-central-1:111122223333:bucket/lake",
        },
    },
}


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "neve.yaml").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    with neve.open() as lake:
        make_by_pyiceberg(lake, TableRef("lake", ("shop", "orders")))
    return tmp_path


def printed(capsys, *arguments, status=0):
    assert run([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_plan_move_status_and_verify(directory, capsys):
    (plan,) = printed(capsys, "move", "shop.*", "--to", "archive", "--dry-run")
    assert plan["location"] == (directory / "archive/warehouse/shop/orders").as_uri()
    assert (plan["snapshots"], plan["blocked_by"]) == (4, [])
    assert not (directory / ".neve" / "moves").exists()
    assert printed(capsys, "move", "status") == []
    (report,) = printed(capsys, "move", "shop.orders", "--to", "archive")
    assert (report["outcome"], report["error"]) == ("registered", None)
    assert report["files_copied"] == plan["copy_files"]
    (state,) = printed(capsys, "move", "status", "shop")
    assert (state["table"], state["target"], state["stage"]) == (
        "shop.orders",
        "archive",
        "registered",
    )
    assert state["files_copied"] == state["files"] == plan["copy_files"]
    assert state["rewrite_count"] > 0
    assert (state["rewrite_error"], state["error"]) == (None, None)
    (check,) = printed(capsys, "move", "verify", "shop.orders", "--to", "archive")
    assert check["outcome"] == "whole"
    next((directory / "archive").rglob("*.parquet")).unlink()
    (check,) = printed(capsys, "move", "verify", "shop.orders", "--to", "archive", status=3)
    assert (check["outcome"], "does not exist" in check["problems"][0]) == ("damaged", True)


def test_a_target_that_cannot_be_written_is_told_as_such(directory, capsys):
    (directory / "archive").mkdir()
    (directory / "archive" / "warehouse").write_text("in the place of the directory")
    (report,) = printed(capsys, "move", "shop.orders", "--to", "archive", status=3)
    assert "Not a directory" in report["error"]
    assert printed(capsys, "tables", "shop")


def test_a_table_that_stays_where_it_is_takes_no_location(directory, capsys):
    arguments = ["move", "shop.orders", "--to", "archive", "--skip-rewrite", "--location", "/x"]
    assert run(arguments) == 2
    assert "leave out --location or --skip-rewrite" in capsys.readouterr().err


def test_text_for_people(directory, capsys):
    assert run(["move", "shop.orders", "--to", "archive", "--limit", "50MB"]) == 0
    captured = capsys.readouterr()
    assert captured.out.split()[:2] == ["table", "outcome"]
    assert "shop.orders  registered" in captured.out
    assert "shop.orders: verifying" in captured.err
    assert run(["move", "status"]) == 0
    assert "registered" in capsys.readouterr().out
    assert run(["move", "status", "shop.nothing"]) == 0
    assert capsys.readouterr().out == "No such move is known.\n"


def test_tables_fit_a_terminal(directory, capsys):
    dry_run = ["move", "shop.orders", "--to", "archive", "--dry-run"]
    verify = ["move", "verify", "shop.orders", "--to", "archive"]
    assert run(dry_run) == 0
    captured = capsys.readouterr()
    location = (directory / "archive/warehouse/shop/orders").as_uri()
    assert f"shop.orders: the target location is {location}" in captured.err
    shown = captured.out
    for arguments in (["move", "shop.orders", "--to", "archive"], ["move", "status"], verify):
        assert run(arguments) == 0
        shown += capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80


def test_a_killed_move_goes_on(directory, capsys):
    environment = {**os.environ, ENVIRONMENT_VARIABLE: "move.file_copied@2"}
    command = [NEVE, "move", "shop.orders", "--to", "archive"]
    killed = subprocess.run(command, env=environment, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    (state,) = printed(capsys, "move", "status")
    assert state["stage"] == "planned"
    (report,) = printed(capsys, "move", "shop.orders", "--to", "archive")
    assert report["outcome"] == "registered"
    (again,) = printed(capsys, "move", "shop.orders", "--to", "archive")
    assert again["outcome"] == "already there"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["shop.orders"], 2, "needs --to CATALOG"),
        (["--to", "archive"], 2, "needs the tables"),
        (["shop.orders", "--to", "nowhere"], 2, "there is no catalog nowhere"),
        (["shop.orders", "--to", "archive", "--incremental", "--replace"], 2, "exclude"),
        (["shop.orders", "--to", "archive", "--verify", "some"], 2, "--verify some is not known"),
        (["shop.orders", "--to", "archive", "--limit", "fast"], 2, "is no size"),
        (["shop.order", "--to", "archive"], 1, "did you mean shop.orders"),
        (["shop.orders", "--to", "bucket"], 1, "cannot register tables"),
        (["shop.orders", "--to", "archive", "--location", "nowhere"], 3, "neve: shop.orders: "),
        (["shop.orders", "--to", "archive", "--location", "nowhere"], 3, "is no address"),
    ],
)
def test_what_makes_no_sense_is_refused(directory, capsys, arguments, status, message):
    assert run(["move", *arguments]) == status
    assert message in capsys.readouterr().err
