"""The story as a whole: where it plays, its chapters in order, and how it ends."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer

import neve
from neve.cli.demo.needs import require_java_and_space
from neve.errors import UsageError

CONFIG = """\
# Made by neve demo. Everything below lies in this directory.
project: demo
catalog:
  type: sqlite
catalogs:
  archive:
    type: sqlite
    uri: sqlite:///archive/catalog.db
    warehouse: archive/warehouse
telemetry:
  promote:
    - {attribute: city}
    - {attribute: order.id, type: int}
audits:
  otel.logs:
    - {name: says_whose_it_is, check: not_null, column: service_name}
  otel.traces:
    - {name: ends_after_it_began, check: between, column: duration_nano, min: 0}
merge:
  tables:
    - namespace: shop
      changelog_table: customers_changes
      mirror_table: customers
      primary_keys: id
      sequence_column: lsn
upkeep:
  tables:
    shop.visits: {compact: true}
"""


def demo(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="D", help="Where the lake is made and left.")
    ] = Path("neve-demo"),
) -> None:
    """Run the pipeline on an embedded lake with data it makes, and leave it to explore."""
    from neve.cli.demo import direct, mirror, move, orders, tables, telemetry, upkeep
    from neve.cli.demo.narrator import Narrator
    from neve.cli.demo.next_steps import next_steps

    output = context.obj.output
    narrator = Narrator(output)
    _require_directory(directory)
    require_java_and_space(directory)
    config = _prepare(directory)
    output.say(f"A lake in {directory}: its catalog is one SQLite file, its tables are Parquet.\n")
    with neve.open(config) as lake:
        with narrator.working("starting Spark"):
            _ = lake.spark
            lake.consolidate()  # what an earlier demo left, if it was cut short
        since = datetime.now(timezone.utc)
        sent = telemetry.tell(lake, config, narrator)
        results: dict[str, Any] = {"telemetry": tables.publish(lake, sent, since, narrator)}
        results["held back"] = tables.hold(lake, config, narrator)
        direct.tell(lake, narrator)
        results |= tables.answer(lake, narrator)
        results["spans"] = tables.read(lake, narrator)
        results["orders"] = orders.tell(lake, narrator)
        results |= mirror.tell(lake, narrator)
        move.tell(lake, narrator)
        results["health of shop.visits"] = upkeep.tell(lake, narrator)
        narrator.step("Three engines that share no code read spans and orders. The results:")
        output.say("")
        output.record(results)
        output.say(next_steps(config, lake.settings.receive.http))


def _require_directory(directory: Path) -> None:
    """Refuse a directory that has something else than an earlier demo."""
    try:
        is_used = directory.exists() and any(directory.iterdir())
    except OSError as error:
        raise _unusable(directory, error) from error
    if is_used and not _is_ours(directory / "neve.yaml"):
        raise UsageError(
            f"{directory} is not empty and not an earlier demo", hint="choose another --dir"
        )


def _prepare(directory: Path) -> Path:
    """Make the directory and its configuration."""
    config = directory / "neve.yaml"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        config.write_text(CONFIG, encoding="utf-8")
    except OSError as error:
        raise _unusable(directory, error) from error
    return config


def _unusable(directory: Path, error: OSError) -> UsageError:
    return UsageError(f"{directory} cannot be used: {error.strerror}", hint="choose another --dir")


def _is_ours(config: Path) -> bool:
    return config.is_file() and config.read_text(encoding="utf-8") == CONFIG
