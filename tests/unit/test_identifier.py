"""Identifiers: what people type, what Spark reads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import UsageError
from neve.lake.identifier import name_of, parse_identifier, quote_identifier


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("otel.logs", ("otel", "logs")),
        ("a.b.c", ("a", "b", "c")),
        ("`a.b`.c", ("a.b", "c")),
        ("`a``b`.`c d`", ("a`b", "c d")),
        ("logs", ("logs",)),
    ],
)
def test_names_are_split_at_dots_outside_backticks(text, parts):
    assert parse_identifier(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a b", "a`b`", "``"])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(UsageError, match="is not a table name"):
        parse_identifier(text)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4).map(tuple))
def test_quoting_is_undone_by_parsing(parts):
    assert parse_identifier(quote_identifier(parts)) == parts


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4).map(tuple))
def test_a_name_is_read_as_it_is_written(parts):
    assert parse_identifier(name_of(parts)) == parts


def test_only_odd_parts_are_written_in_backticks():
    assert (
        name_of(("ns", "plain-1", "my table", "a.b", "a`b")) == "ns.plain-1.`my table`.`a.b`.`a``b`"
    )
