"""Paths are taken apart letter by letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.errors import UnsupportedError
from neve.lake.paths import local_path, store_path, unusable_part


@pytest.mark.parametrize(
    ("path", "scheme", "bucket", "key"),
    [
        ("/a/b c%20d", "file", "", "/a/b c%20d"),
        ("file:/a", "file", "", "/a"),
        ("file:///a?b#c", "file", "", "/a?b#c"),
        ("file://localhost/a b", "file", "", "/a b"),
        ("s3a://lake/t//x%2Fy+z", "s3", "lake", "t//x%2Fy+z"),
        ("S3://lake/a:b", "s3", "lake", "a:b"),
        ("s3://lake/t/lake/a#b?c", "s3", "lake", "t/lake/a#b?c"),
        ("gs://lake/ü", "gs", "lake", "ü"),
    ],
)
def test_nothing_of_a_path_is_decoded(path, scheme, bucket, key):
    place = store_path(path)
    assert (place.scheme, place.bucket, place.key) == (scheme, bucket, key)
    assert local_path(path) == (Path(key) if scheme == "file" else None)


@pytest.mark.parametrize("path", ["data/x", "file:x", "file://data/x"])
def test_a_path_that_is_relative_or_of_another_machine_is_refused(path):
    with pytest.raises(UnsupportedError, match=r"is not absolute|names a host, data"):
        store_path(path)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("s3://b/My Projects/Übung/a%20b+c~d/😀/👩‍💻/a:b;c&d='e'", None),
        ("s3://b/a#b", "'#'"),
        ("/w/a?b", "'?'"),
        ('/w/a"b', "'\"'"),
        ("/w/a\tb", "'\\t'"),
        ("/w/a\udcffb", "'\\udcff'"),
    ],
)
def test_only_letters_are_refused_that_an_engine_takes_for_something_else(path, part):
    assert unusable_part(path) == part
