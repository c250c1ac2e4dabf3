"""What the tab key offers in `neve shell`, and which line Enter ends."""

import pyarrow as pa
import pytest
from prompt_toolkit.document import Document

import neve
from neve.cli.prompt import LakeCompleter, _is_complete
from tests.support.lakes import sqlite_settings


@pytest.fixture(scope="module")
def completer(tmp_path_factory):
    with neve.open(sqlite_settings(tmp_path_factory.mktemp("lake"))) as lake:
        catalog = lake.catalog()
        catalog.create_namespace("shop")
        columns = {"city": pa.string(), "created at": pa.string()}
        catalog.create_table("shop.orders", pa.schema(columns))
        catalog.create_table("shop.odd name", pa.schema(columns))
        yield LakeCompleter(lambda: lake)


@pytest.mark.parametrize(
    ("before", "after", "offered"),
    [
        ("SELECT * FROM sho", "", ["shop.`odd name`", "shop.orders", "show"]),
        ("SELECT * FROM shop.or", "", ["shop.orders"]),
        ("SELECT ci", " FROM shop.orders", ["city"]),
        ("SELECT `cr", " FROM shop.`odd name`", ["`created at`"]),
        ("HAV", "", ["HAVING"]),
        ("SELECT x FROM no.such_table WHERE nonsen", "", []),
    ],
)
def test_completion(completer, before, after, offered):
    document = Document(before + after, len(before))
    assert [each.text for each in completer.get_completions(document, None)] == offered


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT 1; SELECT 2", False),
        ("\\dt", True),
        ("exit", True),
        ("", True),
    ],
)
def test_enter_ends_a_complete_statement(text, complete):
    assert _is_complete(text) is complete
