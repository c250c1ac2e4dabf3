"""Attributes to typed columns: what fits, what does not, and what stays in the map."""

import math

import pytest

from neve.signals import Signal
from neve.telemetry.promote import Promotion, promote, with_promoted_fields
from neve.telemetry.schemas import SCHEMAS
from tests.support.decoding import decode_whole


def decoded(*values):
    """Decode log records whose attribute `k` has the given values, one each."""
    request = Signal.LOGS.request()
    resource = request.resource_logs.add()
    resource.resource.attributes.add(key="Host.Cores").value.int_value = 8
    scope = resource.scope_logs.add()
    scope.scope.attributes.add(key="beta").value.bool_value = True
    for value in values:
        record = scope.log_records.add()
        if value is not None:
            kind = {str: "string", int: "int", float: "double", bool: "bool", bytes: "bytes"}
            held = record.attributes.add(key="k").value
            setattr(held, f"{kind[type(value)]}_value", value)
    return decode_whole(Signal.LOGS, [request.SerializeToString()], [1]).tables["logs"]


def promoted(rows, kind):
    result = promote(rows, [Promotion("k", "record", kind, "k")])
    return result.rows["k"].to_pylist(), result.unfit_values


@pytest.mark.parametrize(
    ("kind", "values", "column", "unfit"),
    [
        ("int", [200, "200", 200.0, -1, None], [200, 200, 200, -1, None], 0),
        ("int", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)], 0),
        ("int", [str(2**63), str(-(2**63) - 1), "9" * 60], [None] * 3, 3),
        ("int", ["", "x", 1.5, True, "1 ", "1\n", 1e300], [None] * 7, 7),
        ("double", [1.5, 2, "2.5", "-1e3", None], [1.5, 2.0, 2.5, -1000.0, None], 0),
        ("double", [math.inf, -math.inf, "1e999"], [math.inf, -math.inf, None], 1),
        ("double", ["", "x", ".", True], [None] * 4, 4),
        ("bool", [True, False, "true", None], [True, False, True, None], 0),
        ("bool", ["yes", 1, "True"], [None] * 3, 3),
        ("string", ["a", 1, True, 1.5, None], ["a", "1", "true", "1.5", None], 0),
    ],
)
def test_a_value_fits_when_its_text_reads_as_the_type(kind, values, column, unfit):
    assert promoted(decoded(*values), kind) == (column, unfit)


def test_not_a_number_is_a_double():
    (value,), unfit = promoted(decoded(math.nan), "double")
    assert math.isnan(value)
    assert unfit == 0


@pytest.mark.parametrize("kind", ["int", "double", "bool"])
def test_bytes_never_fit_whatever_their_base64_reads_as(kind):
    # The base64 of these is 1234, and true.
    assert promoted(decoded(b"\xd7\x6d\xf8", b"\xb6\xbb\x9e"), kind) == ([None, None], 2)


def test_maps_keep_what_was_promoted_and_what_does_not_fit():
    rows = decoded(1, "x")
    result = promote(rows, [Promotion("k", "record", "int", "k")]).rows
    assert result.select(rows.column_names) == rows


def test_resource_and_scope_attributes_are_promoted_too():
    rows = decoded("a", "b")
    result = promote(
        rows,
        [
            Promotion("Host.Cores", "resource", "int", "host_cores"),
            Promotion("beta", "scope", "bool", "beta"),
            Promotion("beta", "record", "bool", "record_beta"),
        ],
    )
    assert result.rows["host_cores"].to_pylist() == [8, 8]
    assert result.rows["beta"].to_pylist() == [True, True]
    assert result.rows["record_beta"].to_pylist() == [None, None]
    assert result.unfit_values == 0


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_table_has_what_may_be_promoted_also_without_rows(table):
    promotions = [
        Promotion("k", source, kind, f"{source}_{kind}")
        for source in ("record", "resource", "scope")
        for kind in ("string", "int", "double", "bool")
    ]
    result = promote(SCHEMAS[table].empty_table(), promotions)
    assert result.rows.schema == with_promoted_fields(SCHEMAS[table], promotions)
    assert result.unfit_values == 0
