"""Requests wait for writers' threads; groups wake the event loop once."""

import asyncio
import threading

import pytest

from neve.buffer.outcome import Outcome
from neve.errors import UnavailableError
from neve.receive.acknowledgements import Acknowledgements

SECONDS = 10.0


def test_a_group_wakes_the_loop_once(monkeypatch):
    async def run():
        acknowledgements = Acknowledgements(SECONDS)
        outcomes = [Outcome() for _ in range(100)]
        waiting = [asyncio.ensure_future(acknowledgements.wait_for(one)) for one in outcomes]
        await asyncio.sleep(0)
        loop, wakes = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe

        def counted(*arguments):
            wakes.append(arguments)
            return wake(*arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        # The loop does not run meanwhile: all are told before it can pass one on.
        writer = threading.Thread(target=lambda: [one.set_result() for one in outcomes])
        writer.start()
        writer.join()
        await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)
        assert len(wakes) == 1

    asyncio.run(run())


def test_failures_reach_those_who_wait():
    async def run():
        acknowledgements = Acknowledgements(SECONDS)
        good, bad, early = Outcome(), Outcome(), Outcome()
        early.set_exception(UnavailableError("early"))
        waiting = [asyncio.ensure_future(acknowledgements.wait_for(one)) for one in (good, bad)]
        await asyncio.sleep(0)
        bad.set_exception(UnavailableError("full"))
        good.set_result()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert results[0] is None
        assert results[1].message == "full"
        with pytest.raises(UnavailableError, match="early"):
            await acknowledgements.wait_for(early)

    asyncio.run(run())


def test_who_waits_too_long_is_told_so_and_what_comes_later_harms_nobody():
    async def run():
        acknowledgements = Acknowledgements(0.01)
        late = Outcome()
        with pytest.raises(UnavailableError, match="in time"):
            await acknowledgements.wait_for(late)
        late.set_result()
        await asyncio.sleep(0)
        await acknowledgements.wait_for(late)

    asyncio.run(run())


def test_no_acknowledgement_is_lost_between_threads():
    async def run():
        acknowledgements = Acknowledgements(SECONDS)
        for _ in range(200):
            outcomes = [Outcome() for _ in range(20)]

            def tell(outcomes=outcomes):
                for one in outcomes:
                    one.set_result()

            writer = threading.Thread(target=tell)
            writer.start()
            waiting = [acknowledgements.wait_for(one) for one in outcomes]
            await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)
            writer.join()

    asyncio.run(run())
