"""Add up the metrics of processes that do the same work and may be started again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

# What only grows while a process runs.
CUMULATIVE = ("counter", "histogram")

# A sample's name and labels.
Key = tuple[str, tuple[tuple[str, str], ...]]
# By family.
Values = Mapping[str, Mapping[Key, float]]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one process says of itself; `run` is another after each start."""

    run: int
    text: bytes


@dataclass(frozen=True, slots=True)
class _Latest:
    run: int
    cumulative: Values


@dataclass(frozen=True, slots=True)
class _Family:
    kind: str
    documentation: str


class MetricSums:
    """The sums. Not for two threads at once.

    A counter of a process that was started again begins at 0. The sum does not go back then, which
    Prometheus would take for a restart of all: what the process had counted when it was last asked
    stays in it. Gauges are those of the processes that answer.
    """

    def __init__(self, shared: Collection[str] = ()) -> None:
        """Begin with nothing.

        Args:
            shared: gauges that every process measures of the same thing; the largest is taken.
        """
        self._shared = frozenset(shared)
        self._families: dict[str, _Family] = {}
        self._latest: dict[int, _Latest] = {}
        # By family: what the processes had counted that have ended since.
        self._ended: dict[str, dict[Key, float]] = {}

    def add_up(self, scrapes: Mapping[int, Scrape]) -> bytes:
        """Return the sums as Prometheus reads them.

        Args:
            scrapes: by a number that each process keeps when it is started again; without those
                that did not answer.
        """
        gauges: dict[str, dict[Key, float]] = {}
        for worker, scrape in scrapes.items():
            values = self._parse(scrape.text)
            cumulative = {name: of for name, of in values.items() if self._is_cumulative(name)}
            before = self._latest.get(worker)
            if before is not None and before.run != scrape.run:
                self._add(self._ended, before.cumulative)
            self._latest[worker] = _Latest(scrape.run, cumulative)
            self._add(gauges, {name: of for name, of in values.items() if name not in cumulative})
        sums: dict[str, dict[Key, float]] = {}
        self._add(sums, self._ended)
        for latest in self._latest.values():
            self._add(sums, latest.cumulative)
        return generate_latest(_Sums(self._metrics({**sums, **gauges})))

    def _parse(self, text: bytes) -> dict[str, dict[Key, float]]:
        values: dict[str, dict[Key, float]] = {}
        for family in text_string_to_metric_families(text.decode()):
            self._families[family.name] = _Family(family.type, family.documentation)
            values[family.name] = {
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for sample in family.samples
            }
        return values

    def _is_cumulative(self, name: str) -> bool:
        return self._families[name].kind in CUMULATIVE

    def _add(self, sums: dict[str, dict[Key, float]], values: Values) -> None:
        for name, samples in values.items():
            of_family = sums.setdefault(name, {})
            for key, value in samples.items():
                so_far = of_family.get(key, 0.0)
                of_family[key] = max(so_far, value) if name in self._shared else so_far + value

    def _metrics(self, sums: Values) -> Iterator[Metric]:
        for name, samples in sums.items():
            family = self._families[name]
            metric = Metric(name, family.documentation, family.kind)
            for (sample_name, labels), value in samples.items():
                metric.add_sample(sample_name, dict(labels), value)
            yield metric


class _Sums(CollectorRegistry):
    """What `generate_latest` asks for."""

    def __init__(self, metrics: Iterator[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics
