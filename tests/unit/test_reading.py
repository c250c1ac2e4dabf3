"""Commands that only read, in the wrong directory: nothing is made, and the lake is named."""

from pathlib import Path

import pytest

from neve.cli.app import run
from neve.cli.reading import is_read


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("tables", 0),
        ("tables shop", 1),
        ("describe shop.orders", 1),
        ("staged list", 0),
        ("staged show otel.logs b1", 1),
        ("index status shop.orders", 1),
        ("index verify shop.orders", 1),
        ("buffer status", 0),
    ],
)
def test_an_empty_lake_is_named_and_not_made(tmp_path, capsys, command, status):
    assert run(command.split()) == status
    printed = capsys.readouterr()
    told = printed.err if status else printed.out
    assert f"catalog sqlite:///{tmp_path}/.neve/catalog.db" in told
    assert f"built-in defaults, no neve.yaml in {tmp_path}" in told
    assert not list(tmp_path.iterdir())


def test_its_configuration_is_named_without_secrets(tmp_path, monkeypatch, capsys):
    Path("neve.yaml").write_text("catalog: {warehouse: wh}")
    monkeypatch.setenv("NEVE_CATALOG__URI", f"sqlite:///{tmp_path}/c.db")
    assert run(["describe", "a.b"]) == 1
    told = capsys.readouterr().err
    assert f"catalog sqlite:///{tmp_path}/c.db, configuration {tmp_path}/neve.yaml" in told
    assert "NEVE_CATALOG__URI" in told
    assert [path.name for path in tmp_path.iterdir()] == ["neve.yaml"]


@pytest.mark.parametrize(
    ("statement", "reads"),
    [
        ("SELECT 1", True),
        ("-- INSERT\n /* DROP */ (select 1)", True),
        ("show namespaces", True),
        ("SHOW CREATE TABLE a.b", True),
        ("SELECT * FROM a.b WHERE op = 'delete' OR `update`", True),
        ("WITH a AS (SELECT 'drop; --' AS x) SELECT x FROM a", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", False),
        ("FROM a INSERT INTO b SELECT *", False),
        ("CREATE TABLE a.b (c INT)", False),
        ("CALL system.expire_snapshots('a.b')", False),
        ("", False),
    ],
)
def test_what_may_write_is_not_taken_for_a_read(statement, reads):
    assert is_read(statement) is reads
