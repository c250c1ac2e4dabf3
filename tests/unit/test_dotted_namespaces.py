"""A namespace whose name has a dot, in backticks, is one namespace to every command."""

from __future__ import annotations

import json

import pytest

import neve
from neve.cli.app import run
from neve.lake.create import ensure_table
from neve.lake.identifier import name_of, parse_identifier
from neve.publish.telemetry_tables import telemetry_table
from neve.upkeep.spec import upkeep_spec
from neve.upkeep.upkeep import Upkeep
from tests.support.odd_tables import make_table

TABLE = "`my.ns`.t"


@pytest.fixture
def lake(tmp_path, monkeypatch):
    (tmp_path / "neve.yaml").write_text(
        f"catalog: {{type: sqlite, uri: 'sqlite:///{tmp_path}/catalog.db', "
        f"warehouse: '{tmp_path}/warehouse'}}\n"
        f"catalogs: {{archive: {{type: sqlite, uri: 'sqlite:///{tmp_path}/archive.db', "
        f"warehouse: '{tmp_path}/archive'}}}}\n"
        f"buffer: {{location: '{tmp_path}/buffer'}}\n"
        "telemetry: {namespace: '`my.ns`'}\n"
        "upkeep: {tables: {'`my.ns`.t': {expire: true}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    with neve.open("neve.yaml") as opened:
        make_table(opened.catalog(), ("my.ns", "t"))
        spec = telemetry_table(opened.settings.telemetry.namespace, "logs", ())
        ensure_table(opened.profile, opened.catalog(), spec)
        yield opened


def printed(capsys, *arguments):
    assert run(["--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("name", [TABLE, "my.ns.t"])
def test_commands_find_its_tables(name, capsys):
    assert printed(capsys, "describe", name)["rows"] == 3
    (health,) = printed(capsys, "health", name)
    assert (health["rows"], health["error"]) == (3, None)
    (report,) = printed(capsys, "maintain", name)
    assert report["error"] is None
    rows = printed(capsys, "sql", "--engine", "duckdb", f"SELECT count(*) AS n FROM {name}")
    assert rows == [{"n": 3}]
    (moved,) = printed(capsys, "move", name, "--to", "archive")
    assert moved["outcome"] == "registered"
    assert printed(capsys, "describe", f"archive.{name}")["rows"] == 3


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("namespace", ["`my.ns`", "my.ns", "`my.ns`.*"])
def test_commands_find_the_namespace(namespace, capsys):
    names = {"my.ns.t", "my.ns.logs"}
    assert {each["table"] for each in printed(capsys, "health", namespace)} == names
    assert {each["table"] for each in printed(capsys, "maintain", namespace)} == names
    plans = printed(capsys, "move", namespace, "--to", "archive", "--dry-run")
    assert {each["table"] for each in plans} == names
    if not namespace.endswith("*"):
        assert {each["table"] for each in printed(capsys, "tables", namespace)} == names


def test_its_telemetry_is_looked_after(lake, capsys):
    kinds = {each["table"]: each["kind"] for each in printed(capsys, "health")}
    assert kinds == {"my.ns.t": "other", "my.ns.logs": "telemetry"}
    upkeep = Upkeep(lake, upkeep_spec(lake.settings))
    report = upkeep.run()
    assert report.failures == {}
    looked_after = [name_of(each) for each in upkeep._tables(report)]
    assert looked_after == ["my.ns.logs", "my.ns.t"]
    assert printed(capsys, "staged", "list") == []


@pytest.mark.parametrize("name", ["`my table`", "`a.b`", "`a``b`"])
def test_commands_find_tables_with_odd_names(lake, name, capsys):
    make_table(lake.catalog(), parse_identifier(f"ns.{name}"))
    written = name_of(parse_identifier(f"ns.{name}"))
    for command in ("tables", "health", "maintain"):
        arguments = [command] if command == "tables" else [command, written]
        assert written in {each["table"] for each in printed(capsys, *arguments)}
    assert printed(capsys, "describe", written)["table"] == written
    query = f"SELECT count(*) AS n FROM ns.{name}"
    assert printed(capsys, "sql", "--engine", "duckdb", query) == [{"n": 3}]
    (moved,) = printed(capsys, "move", written, "--to", "archive")
    assert (moved["table"], moved["outcome"]) == (written, "registered")
    (state,) = printed(capsys, "move", "status", written)
    assert (state["table"], state["stage"]) == (written, "registered")
