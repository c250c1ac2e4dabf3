"""Tables that maintenance looks after: spans of closed hours in small files, and policies."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

from neve.config import Settings
from neve.merge.strategy import Strategy
from neve.telemetry.schemas import SCHEMAS
from tests.support.merging import event
from tests.support.readers import READERS

HOUR = datetime(2026, 11, 16, 10, tzinfo=timezone.utc)
TRACES = "otel.traces"


def with_policies(lake, **tables):
    upkeep = Settings.model_validate({"upkeep": {"tables": tables}}).upkeep
    lake.settings = lake.settings.model_copy(update={"upkeep": upkeep})


def spans(number, at):
    rows = [
        {
            "timestamp": at + timedelta(seconds=second),
            "received_at": at,
            "service_name": service,
            "trace_id": f"{number:032x}",
            "name": f"{service} {number} {second}",
            "attributes": {"city": "Graz"},
        }
        for service in ("cart", "shop")
        for second in range(2)
    ]
    return pa.Table.from_pylist(rows, SCHEMAS["traces"])


def write(lake, hours, files=6):
    """Write files of four spans each; return the spans' names."""
    names = []
    with lake.writer() as writer:
        for hour in hours:
            for number in range(files):
                rows = spans(number, HOUR + timedelta(hours=hour, minutes=number))
                assert writer.write_and_commit("traces", None, rows).committed
                names += rows["name"].to_pylist()
    return Counter(names)


def names_by(lake, engine):
    return Counter(row["name"] for row in READERS[engine](lake, TRACES, by="name"))


def data_files(lake, table=TRACES):
    tasks = lake.catalog().load_table(table).scan().plan_files()
    return [Path(task.file.file_path.removeprefix("file:").replace("///", "/")) for task in tasks]


def churn(mirrored):
    """Leave three files, in two of which most rows are deleted."""
    for wave, keys in enumerate((20, 14, 7)):
        mirrored.append(*(event("U", wave * 100 + key, key, f"{wave}") for key in range(keys)))
        mirrored.merge(strategy=Strategy.INDEX)
