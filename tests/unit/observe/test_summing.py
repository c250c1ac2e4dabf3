"""Metrics of several processes as one."""

from prometheus_client.parser import text_string_to_metric_families

from neve.observe.durations import DurationHistogram
from neve.observe.metrics import Registry
from neve.observe.receiving import ReceiverNumbers, receiving
from neve.observe.summing import MetricSums, Scrape


def said_by_a_worker(*, requests=0, refused=None, in_flight=0, connections=0, buffered=0, took=()):
    """Return what a receiver's process says, in the form it says it."""
    histogram = DurationHistogram()
    for seconds in took:
        histogram.observe(seconds)
    numbers = ReceiverNumbers(
        totals={
            "accepted_requests": {("logs", "shop"): requests},
            "refused_requests": {(reason,): count for reason, count in (refused or {}).items()},
        },
        acknowledgements=histogram.read(),
        in_flight_bytes=in_flight,
        connections={"http": connections},
        buffered_bytes=buffered,
        fsyncs={"logs": histogram.read()},
        forgotten={"logs": 0},
    )
    registry = Registry({"project": "p"})
    registry.register(receiving(lambda: numbers))
    return registry.text()


class Scraper:
    """Reads what sums say."""

    def __init__(self):
        self.sums = MetricSums(["neve_buffer_bytes"])

    def scrape(self, **scrapes):
        workers = {int(name.removeprefix("w")): Scrape(*one) for name, one in scrapes.items()}
        text = self.sums.add_up(workers).decode()
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        return {
            (one.name, *(value for key, value in sorted(one.labels.items()) if key != "project")): (
                one.value
            )
            for family in self.families.values()
            for one in family.samples
        }


def test_counters_histograms_and_gauges_add_up():
    scraper = Scraper()
    first = said_by_a_worker(
        requests=3, refused={"malformed": 1}, in_flight=10, connections=2, took=[0.003, 1.5]
    )
    second = said_by_a_worker(
        requests=4, refused={"unavailable": 5}, in_flight=20, connections=1, took=[0.003]
    )
    values = scraper.scrape(w0=(0, first), w1=(0, second))
    assert values["neve_receive_accepted_requests_total", "shop", "logs"] == 7
    assert values["neve_receive_refused_requests_total", "malformed"] == 1
    assert values["neve_receive_refused_requests_total", "unavailable"] == 5
    assert values["neve_receive_in_flight_bytes",] == 30
    assert values["neve_receive_connections", "http"] == 3
    assert values["neve_receive_acknowledgement_seconds_bucket", "0.005"] == 2
    assert values["neve_receive_acknowledgement_seconds_bucket", "+Inf"] == 3
    assert values["neve_receive_acknowledgement_seconds_count",] == 3
    assert values["neve_buffer_fsync_seconds_count", "logs"] == 3


def test_families_keep_their_kind_and_text():
    scraper = Scraper()
    scraper.scrape(w0=(0, said_by_a_worker(requests=1)))
    accepted = scraper.families["neve_receive_accepted_requests"]
    assert (accepted.type, accepted.documentation) == ("counter", "Requests stored")
    assert accepted.samples[0].labels["project"] == "p"
    assert scraper.families["neve_receive_acknowledgement_seconds"].type == "histogram"
    assert scraper.families["neve_receive_in_flight_bytes"].type == "gauge"


def test_of_what_all_measure_the_largest_is_taken():
    scraper = Scraper()
    texts = [said_by_a_worker(buffered=size) for size in (700, 900, 800)]
    values = scraper.scrape(**{f"w{n}": (0, text) for n, text in enumerate(texts)})
    assert values["neve_buffer_bytes",] == 900


def test_sums_do_not_go_back_when_a_process_is_started_again():
    accepted = ("neve_receive_accepted_requests_total", "shop", "logs")
    scraper = Scraper()
    other = said_by_a_worker(requests=100, connections=1)
    values = scraper.scrape(w0=(0, other), w1=(0, said_by_a_worker(requests=5, connections=1)))
    assert values[accepted] == 105
    # It is down: what it had counted stays, what it had open does not.
    values = scraper.scrape(w0=(0, other))
    assert values[accepted] == 105
    assert values["neve_receive_connections", "http"] == 1
    # Its next run has counted more than the one before, which nobody could tell by the value.
    values = scraper.scrape(w0=(0, other), w1=(1, said_by_a_worker(requests=9, connections=2)))
    assert values[accepted] == 114
    assert values["neve_receive_connections", "http"] == 3
    assert scraper.scrape(w0=(0, other), w1=(1, said_by_a_worker(requests=9)))[accepted] == 114


def test_nothing_said_is_nothing():
    assert Scraper().scrape() == {}
