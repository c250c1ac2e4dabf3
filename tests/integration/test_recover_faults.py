"""Direct writes and `neve recover` on a REST catalog and S3 that fail: each row exactly once."""

from __future__ import annotations

import uuid
from collections import Counter

import pyarrow.parquet as pq
import pytest

from neve.direct import Writer
from neve.direct.deadline import Deadline
from neve.direct.recover import recover
from neve.errors import CatalogError, Code
from tests.support.catalog_faults import after, lost_after, lost_before
from tests.support.direct_lake import DAY, NEXT_DAY, logs
from tests.support.file_stores import s3_store
from tests.support.lakes import plain_settings, rest_settings
from tests.support.proxy import DroppedConnection, Request, Response


class Accepting:
    """A lake whose commits go wrong, with recovery records in a bucket."""

    def __init__(self, lake, faults, bucket):
        name = f"direct_{uuid.uuid4().hex[:12]}"
        direct = {
            "when_unavailable": "accept",
            "recovery": f"s3://{bucket}/{name}/recovery",
            "deadline_seconds": 20.0,
        }
        self.settings = lake.settings.model_copy(
            update={
                "direct": lake.settings.direct.model_copy(update=direct),
                "telemetry": lake.settings.telemetry.model_copy(update={"namespace": name}),
            }
        )
        self.lake = lake
        self.faults = faults
        self.namespace = name
        self.acknowledged = Counter()
        self.writer = Writer.open(self.settings)
        assert self.send("before").committed

    def send(self, name, seconds=20.0):
        deadline = Deadline.after(seconds)
        result = self.writer.write_and_commit("logs", None, logs(name), deadline=deadline)
        self.acknowledged[name] += result.is_kept
        return result

    def recover(self):
        return [report.outcome for report in recover(self.settings)]

    def rows(self):
        table = self.lake.catalog().load_table((self.namespace, "logs"))
        return Counter(table.scan().to_arrow()["body"].to_pylist())

    def check(self):
        """Each acknowledged row once, and nothing left to be done."""
        assert self.rows() == self.acknowledged
        assert self.recover() == []


@pytest.fixture
def accepting(faulty_lake, faults, s3):
    accepting = Accepting(faulty_lake, faults, s3.bucket)
    yield accepting
    faults.is_down = False
    accepting.writer.close()


class LateCommit:
    """Loses a commit on its way, and delivers it when it is told to."""

    def __init__(self) -> None:
        self.deliver = lambda: pytest.fail("no commit was lost")

    def lose(self, request, forward) -> Response:
        self.deliver = lambda: forward(request)
        raise DroppedConnection


def send_and_lose(accepting, faults, late):
    """Write rows whose commit is lost on its way, before the catalog goes away."""

    def lose(request: Request, forward) -> Response:
        faults.is_down = True
        return late.lose(request, forward)

    faults.expect(accepting.namespace, {1: lose})
    result = accepting.send("kept", seconds=1.0)
    faults.is_down = False
    return result


def test_what_is_accepted_while_the_catalog_is_away_is_registered_once(accepting, faults):
    faults.is_down = True
    results = [accepting.send(f"kept {number}", seconds=1.0) for number in range(2)]
    assert [(result.committed, result.is_kept) for result in results] == [(False, True)] * 2
    assert faults.refused_while_down >= 2
    with pytest.raises(CatalogError) as error:
        accepting.recover()
    assert error.value.code is Code.UNREACHABLE
    faults.is_down = False
    assert accepting.send("after").committed
    assert accepting.recover() == ["registered"] * 2
    accepting.check()


def test_a_commit_that_was_applied_before_the_catalog_went_away_is_not_repeated(accepting, faults):
    def apply_and_go_away(request: Request, forward) -> Response:
        forward(request)
        faults.is_down = True
        raise DroppedConnection

    faults.expect(accepting.namespace, {1: apply_and_go_away})
    result = accepting.send("kept", seconds=1.0)
    assert (result.committed, result.is_kept) == (False, True)
    faults.is_down = False
    assert accepting.recover() == ["committed"]
    accepting.check()


def test_a_commit_that_is_delivered_after_its_recovery_is_refused(accepting, faults):
    late = LateCommit()
    result = send_and_lose(accepting, faults, late)
    assert (result.committed, result.is_kept) == (False, True)
    assert accepting.recover() == ["registered"]
    assert late.deliver().status == 409
    accepting.check()


def test_a_commit_that_is_delivered_during_its_recovery_wins(accepting, faults):
    late = LateCommit()
    send_and_lose(accepting, faults, late)
    faults.expect(accepting.namespace, {1: after(late.deliver)})
    assert accepting.recover() == ["registered"]
    assert faults.commits == 1
    accepting.check()


def test_another_recovery_during_a_recovery_registers_nothing_twice(accepting, faults):
    late = LateCommit()
    send_and_lose(accepting, faults, late)
    others = []
    faults.expect(accepting.namespace, {1: after(lambda: others.extend(accepting.recover()))})
    assert accepting.recover() == ["registered"]
    assert others == ["registered"]
    accepting.check()


def test_a_recovery_whose_own_commits_are_lost_registers_once(accepting, faults):
    late = LateCommit()
    send_and_lose(accepting, faults, late)
    faults.expect(accepting.namespace, {1: lost_before, 2: lost_after})
    assert accepting.recover() == ["registered"]
    assert faults.commits == 2
    accepting.check()


def test_plain_parquet_in_a_bucket_is_whole_and_found_by_its_day(s3, tmp_path):
    prefix = f"s3://{s3.bucket}/plain_{uuid.uuid4().hex[:12]}"
    settings = plain_settings(tmp_path)
    settings = settings.model_copy(
        update={
            "catalog": settings.catalog.model_copy(update={"warehouse": prefix}),
            "storage": rest_settings("http://unused", s3).storage,
        }
    )
    with Writer.open(settings) as writer:
        result = writer.write_and_commit("logs", None, logs("here", (DAY, NEXT_DAY)))
    with s3_store(s3) as store:
        assert store.list_sizes(prefix).keys() == set(result.files)
        for path, day in zip(sorted(result.files), (DAY, NEXT_DAY), strict=True):
            assert path.startswith(f"{prefix}/otel/logs/day={day.date()}/")
            with store.open(path) as file:
                assert pq.read_table(file)["timestamp"].to_pylist() == [day]
