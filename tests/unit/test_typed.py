"""What is typed after `neve sql`: forgotten quotes, files, several statements, a caret."""

import io
import os
from pathlib import Path

import pytest

from neve.cli.typed import excerpt, read_statements
from neve.errors import SqlError, UsageError


def test_words_without_quotes_are_one_statement():
    assert read_statements(["SELECT", "1"], None) == ["SELECT 1"]
    assert read_statements(["SELECT * FROM t.sql"], None) == ["SELECT * FROM t.sql"]


def test_a_star_that_the_shell_replaced_is_told():
    for name in ("a.txt", "b"):
        Path(name).touch()
    Path(".neve").mkdir()
    with pytest.raises(UsageError, match=r"the shell replaced \*") as caught:
        read_statements(["SELECT", "a.txt", "b", "FROM", "ns.t"], None)
    assert 'neve sql "SELECT * FROM …"' in caught.value.hint
    assert read_statements(["SELECT", "b", "FROM", "ns.t"], None) == ["SELECT b FROM ns.t"]


def test_what_is_not_utf_8_is_told(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SELECT '\xff'"), "utf-8"))
    with pytest.raises(UsageError, match="standard input cannot be read: it is not UTF-8"):
        read_statements(["-"], None)
    with pytest.raises(UsageError, match="the statement is not UTF-8"):
        read_statements([os.fsdecode(b"SELECT '\xff'")], None)


def test_files_and_standard_input_are_read(monkeypatch):
    Path("q.sql").write_text("SELECT 1;\nSELECT 2;\n")
    assert read_statements([], Path("q.sql")) == ["SELECT 1", "SELECT 2"]
    assert read_statements(["q.sql"], None) == ["SELECT 1", "SELECT 2"]
    for words, file in (["-"], None), ([], Path("-")):
        monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 3"))
        assert read_statements(words, file) == ["SELECT 3"]
    with pytest.raises(UsageError, match=r"absent\.sql cannot be read: No such file"):
        read_statements(["absent.sql"], None)
    with pytest.raises(UsageError, match="exclude each other"):
        read_statements(["SELECT 1"], Path("q.sql"))
    with pytest.raises(UsageError, match="no statement"):
        read_statements([], None)


def test_the_caret_stands_under_the_place_also_in_a_long_line():
    error = SqlError("Syntax error at or near 'FORM'. (line 2, pos 200)")
    line, caret = excerpt("SELECT\n" + "x" * 200 + "FORM" + "y" * 200, error)
    assert line[caret.index("^") :].startswith("FORMyyy")
    assert len(line) <= 80
    assert excerpt("SELECT", SqlError("no place")) == []
    assert excerpt("SELECT", SqlError("(line 1, pos 6)")) == ["  SELECT", "        ^"]
