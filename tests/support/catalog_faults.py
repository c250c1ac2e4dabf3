"""Gates for the REST catalog that make commits go wrong, the way networks and gateways do."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.proxy import (
    DroppedConnection,
    Forward,
    Gate,
    Request,
    Response,
    error_response,
)

_TABLE = re.compile(r".*/namespaces/(?P<namespace>[^/]+)/(tables/(?P<table>[^/]+)|register)")


def refused(status: int) -> Gate:
    """Answer by itself: the catalog never hears of it."""
    return lambda _request, _forward: error_response(status, "Fault", "injected")


def lost_before(request: Request, forward: Forward) -> Response:
    """Hang up; nothing was applied."""
    raise DroppedConnection


def lost_after(request: Request, forward: Forward) -> Response:
    """Apply it, then hang up."""
    forward(request)
    raise DroppedConnection


def failed_after(status: int) -> Gate:
    """Apply it, then answer as a gateway does that lost patience."""

    def gate(request: Request, forward: Forward) -> Response:
        forward(request)
        return error_response(status, "Fault", "injected, after the commit was applied")

    return gate


def cut_after(request: Request, forward: Forward) -> Response:
    """Apply it, and answer with half of a document."""
    answer = forward(request)
    return Response(200, {"Content-Type": "application/json"}, answer.body[: len(answer.body) // 2])


def after(action: Callable[[], object]) -> Gate:
    """Let somebody else be first, and send the commit on then."""

    def gate(request: Request, forward: Forward) -> Response:
        action()
        return forward(request)

    return gate


def twice(request: Request, forward: Forward) -> Response:
    """Send it on twice, as a client library that repeats what it should not; the last answers."""
    forward(request)
    return forward(request)


FAULTS: dict[str, Gate] = {
    "409": refused(409),
    "500": refused(500),
    "503": refused(503),
    "504": refused(504),
    "504 after it was applied": failed_after(504),
    "dropped before": lost_before,
    "dropped after it was applied": lost_after,
    "cut after it was applied": cut_after,
    "sent twice": twice,
    "delayed": after(lambda: time.sleep(0.3)),
}


@dataclass
class CommitFaults:
    """Counts the commits to one namespace, and does to some of them what it is told to."""

    namespace: str = ""
    plan: dict[int, Gate] = field(default_factory=dict)
    commits: int = 0
    # The same for loading the tables of that namespace.
    reading_plan: dict[int, Gate] = field(default_factory=dict)
    reads: int = 0
    # How often each table was loaded.
    loads: Counter[str] = field(default_factory=Counter)
    # A catalog that is down answers nobody.
    is_down: bool = False
    refused_while_down: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(
        self,
        namespace: str,
        plan: dict[int, Gate] | None = None,
        reading_plan: dict[int, Gate] | None = None,
    ) -> None:
        """Begin anew: the first commit to this namespace from now on has number 1."""
        self.namespace, self.plan, self.commits = namespace, plan or {}, 0
        self.reading_plan, self.reads = reading_plan or {}, 0
        self.loads = Counter()
        self.is_down, self.refused_while_down = False, 0

    def __call__(self, request: Request, forward: Forward) -> Response:
        if self.is_down:
            self.refused_while_down += 1
            raise DroppedConnection
        fault = self._fault(request)
        return fault(request, forward) if fault else forward(request)

    def _fault(self, request: Request) -> Gate | None:
        found = _TABLE.fullmatch(request.path)
        if not found or found["namespace"] != self.namespace:
            return None
        with self._lock:
            if request.method == "POST":
                self.commits += 1
                return self.plan.get(self.commits)
            if request.method != "GET":
                return None
            self.reads += 1
            self.loads[found["table"]] += 1
            return self.reading_plan.get(self.reads)
