"""Where statements end, as `neve shell` sees it."""

import pytest

from neve.cli.statements import has_words, split_statements


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
        ("SELECT 1;\nSELECT", ["SELECT 1"], "SELECT"),
        ("SELECT ';' AS a, \";\" AS `b;c`;", ["SELECT ';' AS a, \";\" AS `b;c`"], ""),
        ("SELECT 'it''s; \\';' ;", ["SELECT 'it''s; \\';'"], ""),
        ("SELECT 'open; ", [], "SELECT 'open;"),
        ("SELECT 1 -- one; two\n + 1;", ["SELECT 1 -- one; two\n + 1"], ""),
        ("SELECT /* ; */ 6 / 2 - 1;", ["SELECT /* ; */ 6 / 2 - 1"], ""),
        ("SELECT /* a /* ; */ ; */ 1; SELECT 2", ["SELECT /* a /* ; */ ; */ 1"], "SELECT 2"),
        ("SELECT 1 /* open /* ; */ ; ", [], "SELECT 1 /* open /* ; */ ;"),
        (";; -- nothing\n;", [], ""),
    ],
)
def test_split(text, statements, rest):
    assert split_statements(text) == (statements, rest)


def test_comments_are_no_words():
    assert not has_words(" -- a comment\n /* another */ ")
    assert has_words("-- a comment\nSELECT 1")
