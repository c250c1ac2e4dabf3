"""Answers that are lost, commits that come between: only what the catalog shows decides."""

import pytest

import neve
from neve.errors import CatalogError, UnknownOutcomeError
from neve.lake.commit_loop import RetryPolicy
from neve.move.register import Outcome, register
from tests.support.catalog_faults import FAULTS, after, lost_after
from tests.support.gates import ClientCredentials
from tests.support.lakes import CLIENT, CLIENT_SECRET, postgres_settings, rest_settings
from tests.support.postgres_proxy import Loss, running_lossy_postgres
from tests.support.proxy import running_proxy
from tests.support.registrations import EXTEND, REFUSE, commit_at_target, make_move, roll_back

FEW = RetryPolicy(attempts=4, first_seconds=0.01, most_seconds=0.02, read_attempts=2)


def _register_with(move, step, begin_fault):
    """Register, or extend, with a fault; the table has the source's version in the end."""
    move.source.append()
    if step is EXTEND:
        move.run()
        move.source.append()
    expected, moved = move.read(), move.moved()
    begin_fault()
    outcome = register(move.lake, move.target, moved, step, expected, FEW).outcome
    assert outcome is (Outcome.EXTENDED if step is EXTEND else Outcome.REGISTERED)
    assert move.read().refs == move.source.refs


@pytest.mark.parametrize("fault", ["504", "504 after it was applied", "dropped before"])
@pytest.mark.parametrize("step", [REFUSE, EXTEND])
def test_a_lost_answer_is_settled_by_reading(faulty_lake, faults, tmp_path, fault, step):
    move = make_move(faulty_lake, tmp_path)
    _register_with(move, step, lambda: faults.expect(move.target.identifier[0], {1: FAULTS[fault]}))
    assert faults.commits == (1 if "after" in fault else 2)


def test_an_answer_that_stays_lost_is_unknown_and_nothing_is_undone(faulty_lake, faults, tmp_path):
    move = make_move(faulty_lake, tmp_path)
    move.source.append()
    moved = move.moved()

    def lose(request, forward):
        faults.is_down = True
        return lost_after(request, forward)

    faults.expect(move.target.identifier[0], {1: lose})
    with pytest.raises(UnknownOutcomeError):
        register(faulty_lake, move.target, moved, REFUSE, None, FEW)
    faults.is_down = False
    assert move.run(moved=moved).outcome is Outcome.ALREADY_THERE


def test_a_token_that_expires_during_a_move_is_renewed(rest_catalog, s3, tmp_path):
    gate = ClientCredentials(CLIENT, CLIENT_SECRET)
    with (
        running_proxy(rest_catalog.port, [gate]) as proxy,
        neve.open(rest_settings(proxy.uri, s3, credential=f"{CLIENT}:{CLIENT_SECRET}")) as lake,
    ):
        move = make_move(lake, tmp_path)
        move.source.append()
        lake.catalog().create_namespace(move.target.identifier[0])
        moved = move.moved()
        gate.issued.clear()
        assert register(lake, move.target, moved, REFUSE, None).outcome is Outcome.REGISTERED
        assert len(gate.issued) == 1


def test_a_commit_that_comes_before_the_update_is_not_lost(faulty_lake, faults, tmp_path):
    """On REST the server compares the refs itself: a rollback adds no snapshot that tells of it."""
    move = make_move(faulty_lake, tmp_path)
    first = move.source.append()
    move.source.append()
    move.run()
    move.source.append()
    expected, moved = move.read(), move.moved()
    rollback = after(lambda: commit_at_target(move, roll_back))
    faults.expect(move.target.identifier[0], {1: rollback})
    with pytest.raises(CatalogError, match="main was moved there"):
        register(faulty_lake, move.target, moved, EXTEND, expected, FEW)
    assert move.read().refs == {"main": first}


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("step", [REFUSE, EXTEND])
def test_a_lost_answer_of_a_database_is_settled_by_reading(postgres, s3, tmp_path, loss, step):
    with running_lossy_postgres(postgres.port) as lossy:
        uri = postgres.uri().replace(f":{postgres.port}/", f":{lossy.port}/")
        with neve.open(postgres_settings(postgres, s3, uri=uri)) as lake:
            move = make_move(lake, tmp_path)
            lake.catalog().create_namespace(move.target.identifier[0])
            _register_with(move, step, lambda: lossy.expect({1: loss}))
