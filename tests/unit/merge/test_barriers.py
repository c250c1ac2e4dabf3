"""A TRUNCATE's sequence goes to the next merge as text, and comes back as it was."""

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from neve.merge.locators import read_part

MOMENT = datetime(2024, 1, 1, 0, 0, 0, 500_000)  # noqa: DTZ001 - one without a zone


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("-7", pa.int64(), -7),
        ("1.50", pa.decimal128(5, 2), Decimal("1.50")),
        ("2024-02-29", pa.date32(), date(2024, 2, 29)),
        # As Spark writes it: no more digits than there are.
        ("2024-01-01 00:00:00.5", pa.timestamp("us"), MOMENT),
        ("2024-01-01 00:00:00.5", pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=timezone.utc)),
        ("0000/00ff", pa.string(), "0000/00ff"),
        ("00FF", pa.binary(), b"\x00\xff"),
    ],
)
def test_each_type_is_read_as_spark_wrote_it(text, kind, value):
    assert read_part(text, kind) == value
