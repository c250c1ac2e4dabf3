"""A database's changes in a changelog, and the mirror that merging makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.errors import CatalogError

if TYPE_CHECKING:
    from neve.cli.demo.narrator import Narrator
    from neve.lake import Lake

CHANGELOG = "shop.customers_changes"
MIRROR = "shop.customers"
_COLUMNS = ("op", "lsn", "id", "name", "city")
_OUTCOME = "what becomes of it"
_FIRST = (
    ("r", 10, 1, "Ada", "Chamonix", "inserted"),
    ("r", 10, 2, "Bo", "Zermatt", "replaced: 22 is newer"),
    ("r", 10, 3, "Cy", "Courmayeur", "inserted"),
    ("u", 22, 2, "Bo", "Zermatt", "inserted"),
    ("u", 21, 2, "Bo", "Grindelwald", "replaced: 22 is newer"),
    ("c", 23, 4, "Di", "Chamonix", "inserted"),
)
_SECOND = (
    ("u", 31, 1, "Ada", "Zermatt", "updated"),
    ("d", 34, 3, None, None, "deleted"),
    ("d", 35, 4, None, None, "replaced: 36 is newer"),
    ("c", 36, 4, "Dina", "Courmayeur", "updated"),
    ("u", 24, 3, "Cy", "Grindelwald", "replaced: 34 is newer"),
    ("u", 20, 2, "Bo", "Chamonix", "late: the row has 22"),
)
_CHANGES = [
    (1, "Ada", "Chamonix", "update_preimage"),
    (1, "Ada", "Zermatt", "update_postimage"),
    (3, "Cy", "Courmayeur", "delete"),
    (4, "Di", "Chamonix", "update_preimage"),
    (4, "Dina", "Courmayeur", "update_postimage"),
]
_LEFT = {(1, "Ada", "Zermatt"), (2, "Bo", "Zermatt"), (4, "Dina", "Courmayeur")}


def tell(lake: Lake, narrator: Narrator) -> dict[str, Any]:
    """Make a changelog anew, merge it twice, and return the mirror and what changed in it.

    Raises:
        CatalogError: the mirror is not what the changes amount to, or the changes are not.
    """
    with narrator.working(f"making {CHANGELOG}"):
        for table in (MIRROR, f"{MIRROR}_tombstones", f"{MIRROR}_rejected", CHANGELOG):
            lake.sql(f"DROP TABLE IF EXISTS {table} PURGE")
        lake.sql(
            f"CREATE TABLE {CHANGELOG} (op STRING, lsn BIGINT, id BIGINT, name STRING, "
            "city STRING) USING iceberg"
        )
    narrator.step(
        f"A database's changes arrive in {CHANGELOG}, in any order. op says what happened (c "
        "create, r read by a snapshot, u update, d delete), lsn where in the database's log:"
    )
    _merge(lake, _FIRST, narrator)
    first_load = lake.table(MIRROR).current_snapshot_id
    narrator.step("More changes: an update, two deletes, a customer that comes back:")
    rows = _merge(lake, _SECOND, narrator)
    narrator.explain(
        "Replaced: a newer event of the same customer came in the same batch. "
        "Late: the mirror knew something newer already, so the event is dropped."
    )
    if {(row["id"], row["name"], row["city"]) for row in rows} != _LEFT:
        raise CatalogError(f"{MIRROR} is not what {CHANGELOG} amounts to")
    return {"customers": rows, "changes": _tell_changes(lake, first_load, narrator)}


def _tell_changes(lake: Lake, first_load: int | None, narrator: Narrator) -> list[dict[str, Any]]:
    """Show what changed in the mirror since its first load.

    Raises:
        CatalogError: it is not what the second merge did.
    """
    narrator.step("What changed since the first load? Any two versions of a table can be compared:")
    query = f"{MIRROR} VERSION SINCE {first_load}"
    narrator.explain(f"SELECT id, name, city, _change_type FROM {query}")
    with narrator.working("reading what changed"):
        answer = lake.query(
            f"SELECT id, name, city, _change_type FROM {query} ORDER BY id, _change_type DESC"
        )
    changes: list[dict[str, Any]] = answer.to_pylist()
    narrator.show(answer.column_names, changes)
    if [tuple(row.values()) for row in changes] != _CHANGES:
        raise CatalogError(f"the changes of {MIRROR} are not what the second merge did")
    return changes


def _merge(
    lake: Lake, events: tuple[tuple[Any, ...], ...], narrator: Narrator
) -> list[dict[str, Any]]:
    """Append events, merge them, show both, and return the mirror's rows.

    Raises:
        CatalogError: the merge did not do what the table of events says.
    """
    columns = (*_COLUMNS, _OUTCOME)
    shown = [dict(zip(columns, event, strict=True)) for event in events]
    narrator.show(columns, shown)
    with narrator.working(f"merging {len(events)} changes"):
        _append(lake, shown)
        report = _merge_changelog(lake)
        answer = lake.query(f"SELECT id, name, city, lsn FROM {MIRROR} ORDER BY id")
    outcomes = [event[-1].partition(":")[0] for event in events]
    written = outcomes.count("inserted") + outcomes.count("updated")
    told = (written, *map(outcomes.count, ("deleted", "replaced", "late")))
    counted = (
        report.rows_upserted,
        report.rows_deleted,
        report.superseded,
        report.late_dropped,
    )
    if told != counted:
        raise CatalogError(f"the merge into {MIRROR} counted {counted}, and not {told}")
    narrator.explain(
        f"neve merge: {written} rows written, {told[1]} deleted, {told[2]} events replaced, "
        f"{told[3]} late. The mirror {MIRROR}:"
    )
    rows: list[dict[str, Any]] = answer.to_pylist()
    narrator.show(answer.column_names, rows)
    return rows


def _append(lake: Lake, events: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    table = lake.catalog().load_table(CHANGELOG)
    table.append(pa.Table.from_pylist(events, table.schema().as_arrow()))


def _merge_changelog(lake: Lake) -> Any:
    from neve.merge.merger import Merger
    from neve.merge.spec import merge_specs

    (spec,) = merge_specs(lake.settings, (MIRROR,))
    return Merger(lake, spec, progress=lambda _: None).merge()
