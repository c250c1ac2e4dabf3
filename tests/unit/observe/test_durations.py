"""Durations in buckets."""

from neve.observe.durations import DurationHistogram


def test_durations_are_cumulated_and_summed():
    histogram = DurationHistogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 20.0):
        histogram.observe(seconds)
    durations = histogram.read()
    # A duration equal to a bound is within it, as Prometheus counts.
    assert durations.buckets == (("0.1", 2), ("1.0", 3), ("+Inf", 4))
    assert durations.sum_seconds == 20.65


def test_nothing_observed_is_zero():
    assert DurationHistogram((0.1,)).read().buckets == (("0.1", 0), ("+Inf", 0))
