"""`neve recover`: what it prints, how it ends, and what a person can decide."""

from __future__ import annotations

import json
from collections import Counter

import pytest

import neve
from neve.cli.app import run
from neve.errors import StorageError
from neve.lake.file_store import FileStore
from tests.support.direct_lake import DirectLake
from tests.support.terminal import run_in_terminal


@pytest.fixture
def lake(tmp_path, monkeypatch):
    lake = DirectLake(tmp_path)
    monkeypatch.setenv("NEVE_CATALOG__URI", lake.settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", lake.settings.catalog.warehouse)
    monkeypatch.setenv("NEVE_DIRECT__RECOVERY", lake.settings.direct.recovery)
    return lake


def answer(capsys, *arguments, status=0):
    assert run(["--json", "recover", *arguments]) == status
    return json.loads(capsys.readouterr().out)


def test_a_record_is_registered_and_reported(lake, capsys):
    assert answer(capsys) == []
    record = lake.leave_record("kept")
    (planned,) = answer(capsys, "--dry-run")
    assert (planned["id"], planned["outcome"]) == (record.stem, "to register")
    (done,) = answer(capsys)
    assert (done["outcome"], done["table"], done["rows"]) == ("registered", "otel.logs", 1)
    assert done["snapshot_id"] == lake.table().current_snapshot().snapshot_id
    assert answer(capsys) == []
    assert lake.rows() == lake.acknowledged_rows()


def test_a_record_that_cannot_be_proven_ends_with_3_until_a_person_decides(lake, capsys):
    record = lake.leave_record("kept")
    lake.table().catalog.drop_table("otel.logs")
    (left,) = answer(capsys, status=3)
    assert (left["outcome"], left["reason"]) == ("left", "the table does not exist")
    assert answer(capsys, "--dry-run", status=3) == [left]
    screen = run_in_terminal(["recover"])
    assert screen.status == 3
    assert f"neve recover --forget {record.stem}" in " ".join(screen.text.split())
    # Nobody to ask is no yes.
    assert run(["recover", "--forget", record.stem]) == 2
    assert "say --yes to forget without being asked" in capsys.readouterr().err
    assert run(["recover", "--forget", record.stem, "--dry-run"]) == 2
    question = [("Forget 1 acknowledged rows of otel.logs? [y/N]", "n\r")]
    assert run_in_terminal(["recover", "--forget", record.stem], send=question).status == 1
    assert record.exists()
    capsys.readouterr()
    assert answer(capsys, "--forget", record.stem, "--yes")["outcome"] == "forgotten"
    assert not record.exists()
    assert run(["recover", "--forget", record.stem, "--yes"]) == 1
    assert "no recovery record" in capsys.readouterr().err
    assert answer(capsys) == []


def test_a_damaged_record_can_be_forgotten(lake, capsys):
    lake.records.mkdir(parents=True)
    (lake.records / "damaged.json").write_text("{")
    assert [row["outcome"] for row in answer(capsys, status=3)] == ["left"]
    answer(capsys, "--forget", "damaged", "--yes")
    assert list(lake.records.iterdir()) == []


def test_a_catalog_that_is_away_is_an_error_and_changes_nothing(lake, capsys, monkeypatch):
    lake.leave_record("kept")
    address = lake.settings.catalog.properties["uri"]
    monkeypatch.setenv("NEVE_CATALOG__PROPERTIES", json.dumps({"uri": address}))
    with lake.away():
        assert run(["recover"]) == 1
    assert "is locked by another process" in capsys.readouterr().err
    assert [row["outcome"] for row in answer(capsys)] == ["registered"]
    assert lake.rows() == Counter({"before": 1, "kept": 1})


def test_a_table_that_the_catalog_lost_is_registered_again(lake, capsys):
    lake.leave_record("kept")
    answer(capsys)
    location = lake.table().metadata_location
    with neve.open(lake.settings) as opened:
        opened.catalog().drop_table(("otel", "logs"))
    # The attempt that was not confirmed has left a file with the number of the one after it.
    assert run(["recover", "--table", "otel.logs", "--dry-run"]) == 1
    assert "two attempts of one commit" in capsys.readouterr().err
    chosen = ("--table", "otel.logs", "--metadata", location)
    planned = answer(capsys, *chosen, "--dry-run")
    assert (planned["outcome"], planned["table"]) == ("would be registered", "otel.logs")
    done = answer(capsys, *chosen)
    assert (done["outcome"], done["rows"]) == ("registered", planned["rows"])
    assert answer(capsys, "--table", "otel.logs")["outcome"] == "nothing is broken"
    assert run(["recover", *chosen]) == 1
    assert "nothing is registered in its place" in capsys.readouterr().err
    assert run(["recover", "--location", "/x"]) == 2
    assert run(["recover", "--roll-back"]) == 2
    assert lake.rows() == lake.acknowledged_rows()


def test_a_table_that_the_catalog_lost_is_named_and_nothing_is_done_to_it(lake, capsys):
    lake.leave_record("kept")
    assert run(["recover"]) == 0
    assert "is not in the catalog" not in capsys.readouterr().out
    with neve.open(lake.settings) as opened:
        opened.catalog().drop_table(("otel", "logs"))
    assert run(["recover"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "otel.logs lies in the warehouse and is not in the catalog." in said
    assert "neve recover --table otel.logs --dry-run" in said
    with neve.open(lake.settings) as opened:
        assert opened.unregistered_tables() == ["otel.logs"]


def test_a_warehouse_that_cannot_be_listed_does_not_hide_what_was_recovered(
    lake, capsys, monkeypatch
):
    lake.leave_record("kept")

    def refuse(*_):
        raise StorageError("cannot list the warehouse")

    monkeypatch.setattr(FileStore, "list_directories", refuse)
    assert run(["recover"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "registered" in said
    assert "has lost could not be looked for: cannot list the warehouse" in said
