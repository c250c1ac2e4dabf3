"""An index brought up to date by what changed is the one that would be built anew."""

import tempfile

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.indexed import Workbench

# Few, so that a key has a history.
KEYS = range(3)
keys = st.sets(st.sampled_from(KEYS), min_size=1, max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), keys),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("foreign_delete"), keys),
        st.tuples(st.just("foreign_lower"), keys),
        st.tuples(st.just("bury_late"), keys),
        st.tuples(st.just("duplicate"), keys),
        st.tuples(st.just("drop_file"), st.integers(0, 3)),
        st.tuples(st.just("compact"), st.integers(1, 4)),
        st.tuples(st.just("refresh"), st.none()),
    ),
    max_size=14,
)


class Machine:
    def __init__(self, bench, text):
        self.bench = bench
        self.text = text
        self.moment = 100
        self.before = bench.snapshot()
        self.root = bench.build()
        self.several = set()

    def key(self, number):
        return f"key-{number}" if self.text else number

    def sequence(self, number):
        return f"{number:06d}" if self.text else number

    def tick(self):
        self.moment += 1
        return self.sequence(self.moment)

    def do(self, step, argument):
        bench = self.bench
        chosen = {self.key(one) for one in argument} if isinstance(argument, set) else set()
        has = chosen & bench.now.keys()
        if step == "upsert":
            bench.remove(has)
            bench.add([(key, self.tick()) for key in sorted(chosen)])
        elif step == "delete":
            bench.bury([(key, self.tick()) for key in sorted(chosen)])
            bench.remove(has)
        elif step == "foreign_delete":
            bench.remove(has)
        elif step == "foreign_lower":
            bench.remove(has)
            bench.add([(key, self.sequence(self.moment - 90)) for key in sorted(chosen)])
        elif step == "bury_late":
            bench.bury([(key, self.sequence(self.moment - 50)) for key in sorted(chosen)])
        elif step == "duplicate":
            bench.add([(key, self.tick()) for key in sorted(chosen)])
        elif step == "drop_file":
            bench.drop(list(bench.now.rows)[argument : argument + 1])
        elif step == "compact":
            bench.compact(list(bench.now.rows)[:argument])
        else:
            self.refresh()

    def refresh(self):
        bench = self.bench
        self.root = bench.refresh(self.root, self.before)
        self.before = bench.snapshot()
        contents, wanted = bench.contents(self.root), bench.wanted()
        assert bench.contents(bench.build()) == wanted
        # A key that once had several rows stays so marked, whatever became of them.
        self.several |= bench.now.duplicate_keys()
        marked = {int(one) for one in bench.hashes(sorted(self.several))}
        assert {key for key, place in contents.items() if place[0] == "several"} == marked
        for places in (contents, wanted):
            for key in marked & places.keys():
                del places[key]
        assert contents == wanted


@settings(max_examples=60, deadline=None)
@given(steps, st.booleans())
@example(
    changes=[("delete", {0}), ("upsert", {0}), ("refresh", None), ("foreign_lower", {0})],
    text=False,
)
@example(
    changes=[("delete", {0}), ("upsert", {0}), ("refresh", None), ("foreign_delete", {0})],
    text=True,
)
@example(
    changes=[("duplicate", {0}), ("duplicate", {0}), ("refresh", None), ("foreign_delete", {0})],
    text=True,
)
@example(changes=[("upsert", {0}), ("refresh", None), ("duplicate", {0})], text=False)
@example(
    changes=[("duplicate", {0}), ("duplicate", {0}), ("refresh", None), ("delete", {0})], text=False
)
def test_what_changed_is_enough(changes, text):
    kind = pa.string() if text else pa.int64()
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(Workbench(directory, kind, kind), text)
        for step, argument in changes:
            machine.do(step, argument)
        machine.refresh()
