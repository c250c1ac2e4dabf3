"""Plans as values: whatever is met, one follows that can be carried out."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from neve.errors import StorageError
from neve.merge import carry_out
from neve.merge.report import Counts
from neve.merge.strategy import MergePlan, Obstacle, Strategy, find_obstacle, next_plan

MEETINGS = [
    Counts(has_truncate=truncated, duplicate_keys=duplicates, index_is_broken=broken)
    for truncated, duplicates, broken in itertools.product((False, True), (0, 2), (False, True))
]
PLANS = [MergePlan(strategy, "why") for strategy in list(Strategy)[1:]]


@pytest.mark.parametrize(("plan", "counts"), list(itertools.product(PLANS, MEETINGS)))
def test_every_plan_ends_in_one_that_meets_nothing(plan, counts):
    tried = [plan]
    while obstacle := find_obstacle(tried[-1], counts):
        assert tried[-1].fallbacks[obstacle] is next_plan(tried[-1], obstacle).strategy
        tried.append(next_plan(tried[-1], obstacle))
        assert len(tried) <= 3
    last = tried[-1]
    if counts.has_truncate:
        assert last.strategy is Strategy.MERGE
    elif plan.uses_index and (counts.duplicate_keys or counts.index_is_broken):
        assert last.strategy is Strategy.SCAN
    else:
        assert last is plan
    if plan.uses_index and counts.index_is_broken:
        assert last.builds_index


def test_what_a_plan_falls_back_to_is_part_of_it():
    index, scan, merge = (MergePlan(one, "") for one in list(Strategy)[1:])
    assert index.fallbacks == {
        Obstacle.INDEX_BROKEN: Strategy.SCAN,
        Obstacle.DUPLICATE_KEYS: Strategy.SCAN,
        Obstacle.TRUNCATE: Strategy.MERGE,
    }
    assert scan.fallbacks == {Obstacle.TRUNCATE: Strategy.MERGE}
    assert merge.fallbacks == {}


@pytest.mark.parametrize("plan", PLANS)
def test_deletes_that_are_no_vectors_leave_the_statement_only(plan):
    instead = next_plan(plan, Obstacle.OTHER_DELETES, "equality deletes")
    assert (instead.strategy, instead.why) == (Strategy.MERGE, "equality deletes")
    assert instead.fallbacks == {}


def test_a_mirror_that_cannot_be_indexed_is_scanned_and_no_index_is_built():
    plan = next_plan(MergePlan(Strategy.INDEX, ""), Obstacle.NOT_INDEXABLE, "a file is Avro")
    assert (plan.strategy, plan.why, plan.builds_index) == (Strategy.SCAN, "a file is Avro", False)


@pytest.mark.parametrize("forced", [Strategy.AUTO, Strategy.INDEX])
def test_an_index_that_a_store_refuses_is_done_without_and_one_that_is_away_is_not(
    monkeypatch, forced
):
    plan, mirror = MergePlan(Strategy.INDEX, "few rows change"), SimpleNamespace(indexed=Mock())
    refused, away = StorageError("access was refused"), StorageError("503", retryable=True)
    monkeypatch.setattr(carry_out, "find_root", Mock(side_effect=[refused, away]))
    otherwise = carry_out._with_index(plan, mirror, forced)
    assert (otherwise.strategy, otherwise.builds_index) == (Strategy.SCAN, False)
    with pytest.raises(StorageError, match="503"):
        carry_out._with_index(plan, mirror, forced)
