"""Columns with new names, and names with new columns."""

import pytest

from neve.versions.renamed_columns import NameReusedError, renamed_columns


def fields(text):
    """Make fields of `1a 2b`: ids and names."""
    return [{"id": int(word[0]), "name": word[1:]} for word in text.split()]


@pytest.mark.parametrize(
    ("before", "after", "renamed"),
    [
        ("1a 2b", "1a 2b 3c", []),
        ("1a 2b", "2b", []),
        ("1a 2b", "1x 2B", [("a", "x"), ("b", "B")]),
        ("1a 2b 3c", "1b 2c 3d", [("c", "d"), ("b", "c"), ("a", "b")]),
        ("1a 2b", "1old 2b 3a", [("a", "old")]),
    ],
)
def test_renamed(before, after, renamed):
    assert list(renamed_columns(fields(before), fields(after)).items()) == renamed


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("1a 2b", "1b 2a", "b"),
        ("1a 2b 3c", "1b 2c 3a", "b"),
        ("1a 2b", "1a 3b", "b"),
        ("1a 2b", "1a 3B", "B"),
        ("1a 2b", "1b", "b"),
    ],
)
def test_a_name_of_another_column(before, after, name):
    with pytest.raises(NameReusedError) as told:
        renamed_columns(fields(before), fields(after))
    assert told.value.name == name
