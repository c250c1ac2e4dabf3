"""A small job writes to the same table, without Spark and without a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.errors import CatalogError
from neve.signals import Signal

if TYPE_CHECKING:
    from neve.api import OpenLake
    from neve.cli.demo.narrator import Narrator

_TABLE = "otel.logs"


def tell(lake: OpenLake, narrator: Narrator) -> None:
    """Write one request directly.

    Raises:
        CatalogError: its rows were not committed.
    """
    from neve.cli.demo import client
    from neve.direct import Writer

    with narrator.working("writing a request without Spark"), Writer.open(lake.settings) as writer:
        result = writer.write_request(Signal.LOGS, client.job_request())
    if not result.committed or result.rows != client.JOB_RECORDS:
        raise CatalogError(f"{_TABLE} did not take the rows of a direct write", hint="report it")
    narrator.step(
        "A nightly job has no receiver, and AWS Lambda has no Spark: one call of neve.direct "
        f"writes a request of {result.rows} log records and commits it. The same table now holds "
        "rows of both ways:"
    )
    services = (
        f"SELECT service_name, count(*) AS records FROM {_TABLE} GROUP BY service_name "
        "ORDER BY service_name"
    )
    narrator.show(("service_name", "records"), lake.read(services).to_pylist())
