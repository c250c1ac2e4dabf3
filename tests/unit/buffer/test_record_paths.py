"""Selecting records of a request by their paths."""

from __future__ import annotations

import pytest

from neve.buffer.record_paths import record_at, select_records
from neve.errors import CorruptionError
from neve.signals import Signal

LOGS = Signal.LOGS.request
METRICS = Signal.METRICS.request


def logs():
    """Two resources, two scopes each, three records each, all of them different."""
    request = LOGS()
    for r in range(2):
        resource = request.resource_logs.add(schema_url=f"r{r}")
        resource.resource.attributes.add(key="service.name").value.string_value = f"service {r}"
        for s in range(2):
            scope = resource.scope_logs.add(schema_url=f"s{s}")
            scope.scope.name = f"scope {s}"
            for n in range(3):
                scope.log_records.add().body.string_value = f"{r}{s}{n}"
    return request


def bodies(request):
    return [
        record.body.string_value
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def test_only_the_named_records_stay_in_the_order_of_the_request():
    selected = select_records(
        logs(),
        [
            "resource_logs[1].scope_logs[1].log_records[2]",
            "resource_logs[1].scope_logs[0].log_records[1]",
            "resource_logs[1].scope_logs[1].log_records[0]",
        ],
    )
    assert bodies(selected) == ["101", "110", "112"]
    [resource] = selected.resource_logs
    assert resource.resource.attributes[0].value.string_value == "service 1"
    assert resource.schema_url == "r1"
    assert [scope.scope.name for scope in resource.scope_logs] == ["scope 0", "scope 1"]
    assert [scope.schema_url for scope in resource.scope_logs] == ["s0", "s1"]


def test_the_request_itself_is_not_changed():
    request = logs()
    select_records(request, ["resource_logs[0].scope_logs[0].log_records[0]"])
    assert request == logs()


def test_a_path_to_a_whole_part_takes_all_of_it():
    paths = ["resource_logs[0].scope_logs[1]", "resource_logs[0].scope_logs[1].log_records[0]"]
    assert bodies(select_records(logs(), paths)) == ["010", "011", "012"]


def test_points_keep_what_their_metric_says():
    request = METRICS()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m", unit="s")
    metric.metadata.add(key="k").value.string_value = "v"
    metric.sum.is_monotonic = True
    for n in range(3):
        metric.sum.data_points.add(as_int=n)
    place = "resource_metrics[0].scope_metrics[0].metrics[0]"
    selected = select_records(request, [f"{place}.sum.data_points[1]"])
    [kept] = selected.resource_metrics[0].scope_metrics[0].metrics
    assert (kept.name, kept.unit, kept.sum.is_monotonic) == ("m", "s", True)
    assert kept.metadata[0].key == "k"
    assert [point.as_int for point in kept.sum.data_points] == [1]


def test_a_record_is_found_by_its_path():
    record = record_at(logs(), "resource_logs[0].scope_logs[1].log_records[2]")
    assert record.body.string_value == "012"


@pytest.mark.parametrize(
    "path",
    [
        "resource_logs[2]",
        "resource_logs[0].scope_logs[0].log_records[3]",
        "resource_spans[0]",
        "resource_logs",
        "resource_logs[0].schema_url.x",
        "resource_logs[-1]",
        "__class__",
        "resource_logs[0].",
        "",
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path):
    with pytest.raises(CorruptionError):
        select_records(logs(), [path])
