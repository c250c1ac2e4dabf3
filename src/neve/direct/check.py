"""What `neve config check` tries of direct writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from neve.lake.profile import DEFAULT_CATALOG, CatalogProfile, profile_named

if TYPE_CHECKING:
    from neve.config import Settings


def checks(settings: Settings) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield what is checked and the function that does it, which raises a `NeveError`."""
    profile = profile_named(settings, DEFAULT_CATALOG)
    if settings.direct.when_unavailable == "accept" and profile.has_catalog:
        yield "direct recovery", partial(probe_recovery, profile, settings.direct.recovery)


def probe_recovery(profile: CatalogProfile, location: str) -> str:
    """Write and delete one small file where recovery records go; leaves nothing behind."""
    from neve.direct.recovery import RecoveryStore, require_recovery

    require_recovery(profile, location)
    with RecoveryStore(profile, location) as store:
        store.check()
    return f"{location} takes recovery records"
