"""A database's changes in a changelog, and the mirror that merging makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.cli.output import Output
    from neve.lake import Lake

CHANGELOG = "shop.customers_changes"
MIRROR = "shop.customers"
_COLUMNS = ("op", "lsn", "id", "name", "city")
_FIRST = (
    ("r", 10, 1, "Ada", "Chamonix"),
    ("r", 10, 2, "Bo", "Zermatt"),
    ("r", 10, 3, "Cy", "Courmayeur"),
    ("u", 21, 2, "Bo", "Grindelwald"),
    ("u", 22, 2, "Bo", "Zermatt"),
    ("c", 23, 4, "Di", "Chamonix"),
)
# The last two are older than what is known of their keys by then.
_SECOND = (
    ("u", 31, 1, "Ada", "Zermatt"),
    ("d", 34, 3, None, None),
    ("d", 35, 4, None, None),
    ("c", 36, 4, "Dina", "Courmayeur"),
    ("u", 24, 3, "Cy", "Grindelwald"),
    ("u", 20, 2, "Bo", "Chamonix"),
)
_LEFT = {(1, "Ada", "Zermatt"), (2, "Bo", "Zermatt"), (4, "Dina", "Courmayeur")}


def tell(lake: Lake, output: Output, step: Callable[[str], None]) -> list[dict[str, Any]]:
    """Make a changelog anew, merge it twice, and return the mirror.

    Raises:
        CatalogError: the mirror is not what the changes amount to.
    """
    for table in (MIRROR, f"{MIRROR}_tombstones", f"{MIRROR}_rejected", CHANGELOG):
        lake.sql(f"DROP TABLE IF EXISTS {table} PURGE")
    lake.sql(
        f"CREATE TABLE {CHANGELOG} (op STRING, lsn BIGINT, id BIGINT, name STRING, city STRING) "
        "USING iceberg"
    )
    step(f"A database's changes arrive in {CHANGELOG}; neve merge makes {MIRROR} of them:\n")
    _append(lake, _FIRST)
    merged = _merge(lake)
    output.show(("id", "name", "city", "lsn"), _rows(lake))
    output.say(
        f"\n   {merged.rows_scanned} events, {merged.rows_upserted} rows: the newest of each key.\n"
    )
    step("An update, two deletes, a key that comes back, and two events that are too old:\n")
    _append(lake, _SECOND)
    merged = _merge(lake)
    rows = _rows(lake)
    output.show(("id", "name", "city", "lsn"), rows)
    output.say(
        f"\n   {merged.rows_upserted} rows written, {merged.rows_deleted} deleted; "
        f"{merged.rows_deduplicated} events were overtaken in their batch, and "
        f"{merged.late_dropped} came too late.\n"
    )
    if {(row["id"], row["name"], row["city"]) for row in rows} != _LEFT:
        raise CatalogError(f"{MIRROR} is not what {CHANGELOG} amounts to")
    return rows


def _append(lake: Lake, events: tuple[tuple[Any, ...], ...]) -> None:
    import pyarrow as pa

    table = lake.catalog().load_table(CHANGELOG)
    rows = [dict(zip(_COLUMNS, event, strict=True)) for event in events]
    table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))


def _merge(lake: Lake) -> Any:
    from neve.merge.merger import Merger
    from neve.merge.spec import merge_specs

    (spec,) = merge_specs(lake.settings, (MIRROR,))
    return Merger(lake, spec, progress=lambda _: None).merge()


def _rows(lake: Lake) -> list[dict[str, Any]]:
    rows = lake.query(f"SELECT id, name, city, lsn FROM {MIRROR} ORDER BY id").to_pylist()
    return list(rows)
