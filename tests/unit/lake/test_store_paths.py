"""Paths are taken apart letter by letter."""

from __future__ import annotations

import pytest

from neve.errors import UnsupportedError
from neve.lake.store_paths import store_path


@pytest.mark.parametrize(
    ("path", "scheme", "bucket", "key"),
    [
        ("/a/b c%20d", "file", "", "/a/b c%20d"),
        ("file:/a", "file", "", "/a"),
        ("file:///a?b#c", "file", "", "/a?b#c"),
        ("s3a://lake/t//x%2Fy+z", "s3", "lake", "t//x%2Fy+z"),
        ("S3://lake/a:b", "s3", "lake", "a:b"),
        ("gs://lake/ü", "gs", "lake", "ü"),
    ],
)
def test_nothing_of_a_path_is_decoded(path, scheme, bucket, key):
    place = store_path(path)
    assert (place.scheme, place.bucket, place.key) == (scheme, bucket, key)


def test_a_relative_path_is_refused():
    with pytest.raises(UnsupportedError, match="data/x is not absolute"):
        store_path("data/x")
