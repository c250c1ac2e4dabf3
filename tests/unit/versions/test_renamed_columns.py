"""Columns with new names, and names with new columns."""

import pytest

from neve.versions.renamed_columns import NameReusedError, changed_inside, renamed_columns


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


def struct(*inner, name="a", number=1):
    fields = [{"id": each, "name": text, "type": "int", "required": False} for each, text in inner]
    return [{"id": number, "name": name, "type": {"type": "struct", "fields": fields}}]


def lists(name):
    (element,) = struct((3, name))
    kind = {"type": "list", "element-id": 2, "element": element["type"], "element-required": True}
    return [{"id": 1, "name": "a", "type": kind}]


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        (struct((2, "x")), struct((2, "x"), (3, "y")), None),
        (struct((2, "x"), (3, "y")), struct((3, "y"), (2, "x")), None),
        (struct((2, "x")), struct((2, "x"), name="b"), None),
        (struct((2, "x")), struct((3, "x"), number=9), None),
        (struct((2, "x")), struct((2, "y")), "a"),
        (struct((2, "x"), (3, "y")), struct((2, "x")), "a"),
        (struct((2, "x")), struct((3, "x")), "a"),
        (lists("x"), lists("x"), None),
        (lists("x"), lists("y"), "a"),
    ],
)
def test_changes_inside_a_column(before, after, name):
    assert changed_inside(before, after) == name
