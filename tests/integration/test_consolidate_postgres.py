"""Consolidation on PostgreSQL while commits, or the answers to them, get lost: each row once."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve.signals import Signal
from tests.integration.test_consolidate_faults import ROWS, check
from tests.support.consolidation import Bench
from tests.support.lakes import postgres_settings
from tests.support.postgres_proxy import Loss, running_lossy_postgres


@pytest.fixture(scope="module")
def lossy(postgres):
    with running_lossy_postgres(postgres.port) as lossy:
        yield lossy


@pytest.fixture(scope="module")
def lake(lossy, postgres, s3):
    with neve.open(postgres_settings(replace(postgres, port=lossy.port), s3)) as lake:
        yield lake


@pytest.fixture
def bench(lake, lossy, tmp_path):
    """A table that exists, and two requests in two streams, each a batch of its own."""
    lossy.expect()
    bench = Bench(lake, tmp_path, namespace=f"lossy_{uuid.uuid4().hex[:12]}", batch_bytes=1)
    bench.send(Signal.LOGS, "a")
    bench.run()
    bench.send(Signal.LOGS, "b")
    bench.send(Signal.LOGS, "c")
    return bench


SOAK = pytest.mark.soak
# Two batches, each staged and published: four commits.
COMMITS = [pytest.param(1, marks=SOAK), 2, *(pytest.param(n, marks=SOAK) for n in (3, 4))]


@pytest.mark.parametrize("number", COMMITS)
@pytest.mark.parametrize("loss", Loss)
def test_a_commit_whose_connection_is_cut_leaves_each_row_once(bench, lossy, loss, number):
    lossy.expect({number: loss})
    report = bench.run()
    assert not report.failed
    assert lossy.commits >= 4
    assert report.commits.unknown_outcomes == 1
    # Known for ours, not taken for another worker's.
    assert report.rows == 4
    check(bench, ROWS + Counter(["c 0", "c 1"]))
