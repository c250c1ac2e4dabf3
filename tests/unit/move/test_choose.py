"""Which tables are meant, and how far their move is."""

import pyarrow as pa
import pytest

import neve
from neve.errors import NotFoundError, UsageError
from neve.move.choose import choose_tables, matching_tables
from neve.move.progress import Progress
from tests.support.lakes import sqlite_settings
from tests.support.moved_tables import with_catalogs

TABLES = [("shop", "orders"), ("shop", "orders_2"), ("shop", "eu", "orders"), ("otel", "logs")]


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        # The namespace shop.orders, if there was one, would not be meant.
        (("shop", "orders"), [0]),
        (("shop", "orders*"), [0, 1]),
        (("shop",), [0, 1, 2]),
        (("*", "orders"), [0]),
        (("shop", "eu"), [2]),
        (("*",), [0, 1, 2, 3]),
        (("sho",), []),
        (("Shop",), []),
    ],
)
def test_a_pattern_is_a_table_or_a_namespace_or_a_glob(pattern, chosen):
    assert matching_tables(pattern, TABLES) == [TABLES[number] for number in chosen]


def test_names_of_catalogs_and_what_makes_no_sense(tmp_path):
    further = sqlite_settings(tmp_path / "archive")
    settings = with_catalogs(sqlite_settings(tmp_path), tmp_path / "journals", archive=further)
    with neve.open(settings) as lake:
        for catalog in ("lake", "archive"):
            lake.catalog(catalog).create_namespace("shop")
            lake.catalog(catalog).create_table("shop.orders", pa.schema([("id", pa.int64())]))
        lake.catalog("archive").create_table("shop.items", pa.schema([("id", pa.int64())]))
        chosen = choose_tables(lake, ["archive.shop", "archive.shop.orders"], "lake")
        assert [each.name for each in chosen] == ["archive.shop.items", "archive.shop.orders"]
        for pattern, target, error, message in (
            ("shop.orders", "lake", UsageError, "already"),
            ("shop.orders", "nowhere", UsageError, "there is no catalog nowhere"),
            ("shop.ordres", "archive", NotFoundError, "did you mean shop.orders"),
            ("shop.x*", "archive", NotFoundError, "no table of catalog lake matches shop.x"),
            ("shopp", "archive", NotFoundError, "there are: shop"),
        ):
            with pytest.raises(error, match=message):
                choose_tables(lake, [pattern], target)


def test_progress_says_bytes_rate_and_time_left():
    now, lines = [0.0], []
    progress = Progress(lines.append, 10.0, lambda: now[0])
    progress.expect(4_000_000_000)
    progress.add(0)
    now[0] = 5.0
    progress.add(500_000_000)
    now[0] = 10.0
    progress.add(500_000_000)
    assert lines == ["copied 1 GB of 4 GB, 100 MB/s, 30 s left"]
