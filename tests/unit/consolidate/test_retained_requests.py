"""What a replay keeps of retained requests: enough to find copies, in bounded memory."""

from neve.buffer.frame import Entry
from neve.buffer.reader import Segment
from neve.consolidate.retained_requests import RetainedRequests
from neve.errors import CorruptionError
from tests.support.peak_memory import grown_megabytes

FIRST, SECOND = (Segment("logs/a", number, 100, f"logs/a/{number}") for number in (1, 2))


def entry(content, received=0, sender=b"s" * 16):
    return Entry(received, sender, content.ljust(32), 0, 0, 1, 10, 10)


def reading(segments):
    requests = RetainedRequests(lambda segment: iter(segments[segment]))
    for segment in segments:
        requests.read(segment)
    return requests


def test_only_requests_whose_hash_occurs_twice_may_be_copies():
    requests = reading(
        {
            FIRST: [entry(b"one"), entry(b"two"), entry(b"three")],
            SECOND: [entry(b"four"), entry(b"two"), entry(b"three", sender=b"t" * 16)],
        }
    )
    assert [one.place for one in requests.possible_copies([FIRST, SECOND])] == [
        ("logs/a", 1, 1),
        ("logs/a", 1, 2),
        ("logs/a", 2, 1),
        ("logs/a", 2, 2),
    ]
    assert list(requests.possible_copies([FIRST])) == []
    assert list(requests.possible_copies([])) == []
    assert requests.count([FIRST, SECOND]) == 6


def test_a_segment_is_as_young_as_its_newest_request():
    requests = reading({FIRST: [entry(b"one", 30), entry(b"two", 20)], SECOND: []})
    assert [requests.has_since(FIRST, since) for since in (0, 30, 31)] == [True, True, False]
    assert not requests.has_since(SECOND, 0)


def test_of_a_damaged_segment_what_comes_before_the_damage_counts():
    def entries(_segment):
        yield entry(b"one")
        raise CorruptionError("cut off")

    requests = RetainedRequests(entries)
    requests.read(FIRST)
    assert requests.count([FIRST]) == 1


def test_a_retained_request_takes_some_eight_bytes():
    preparation = """
        import hashlib
        from neve.buffer.frame import Entry
        from neve.buffer.reader import Segment
        from neve.consolidate.retained_requests import RetainedRequests

        def entries(segment):
            for number in range(1000):
                digest = hashlib.sha256(b"%d %d" % (segment.number, number)).digest()
                yield Entry(number, bytes(16), digest, 0, 0, 1, 10, 10)

        requests = RetainedRequests(entries)
        segments = [Segment("logs/a", number, 100, "") for number in range(200)]
        """
    work = """
        for segment in segments:
            requests.read(segment)
        assert not list(requests.possible_copies(segments))
        """
    # An object for each took 66 MB.
    assert grown_megabytes(preparation, work) < 15
