"""What is printed: whole cells in a pipe, one valid JSON document, no secrets."""

import json
from datetime import date, datetime, timezone
from decimal import Decimal

from neve.cli.output import JsonOutput, TextOutput
from neve.errors import NeveError

ROW = {
    "text": "x" * 300,
    "number": 7,
    "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    "day": date(2026, 1, 2),
    "amount": Decimal("1.50"),
    "raw": b"\x01\xff",
    "odd": float("nan"),
    "none": None,
    "nested": {"a": [1, float("inf")], 2: "b"},
    "yes": True,
}


def test_json_is_one_valid_document(capsys):
    JsonOutput().rows(list(ROW), [ROW])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["when"] == "2026-01-02T03:04:05+00:00"
    assert row["amount"] == "1.50"
    assert row["raw"] == "01ff"
    assert row["odd"] == "nan"
    assert row["nested"] == {"a": [1, "inf"], "2": "b"}
    assert row["none"] is None


def test_json_tells_people_nothing(capsys):
    output = JsonOutput()
    output.say("hello")
    output.show(["a"], [{"a": 1}])
    assert capsys.readouterr().out == ""


def test_text_in_a_pipe_is_never_cut(capsys):
    TextOutput().rows(list(ROW), [ROW])
    printed = capsys.readouterr().out
    assert "x" * 300 in printed
    assert len(printed.splitlines()) == 2


def test_markup_in_data_is_printed_as_it_is(capsys):
    TextOutput().rows(["[bold]"], [{"[bold]": "[red]x[/red]"}])
    assert "[red]x[/red]" in capsys.readouterr().out


def test_what_a_terminal_would_obey_is_escaped(capsys):
    output, hostile = TextOutput(), "\x1b]0;owned\x07\x9b31m"
    output.rows([hostile], [{hostile: hostile}])
    output.record({"body": hostile, "columns": [{"doc": hostile}]})
    output.error(NeveError(f"{hostile} is no number"))
    output.progress(hostile)
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("\\x1b]0;owned\\x07\\x9b31m") == 6
    assert not {"\x1b", "\x07", "\x9b"} & set(printed.out + printed.err)


def test_secrets_are_hidden_in_errors_and_progress(capsys):
    output = TextOutput()
    output.hide(frozenset({"hunter2"}))
    output.error(NeveError("login with hunter2 failed", hint="not hunter2"))
    output.progress("trying hunter2")
    assert "hunter2" not in capsys.readouterr().err
