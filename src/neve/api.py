"""What `neve.open` returns: a lake with every feature as a method, as the command line has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from neve.config import Settings
from neve.lake import Lake
from neve.lake.lake import read_settings

if TYPE_CHECKING:
    from neve.merge.report import Preview, TableReport


class OpenLake(Lake):
    """A lake and what can be done with it."""

    def merge(self, *tables: str, rebuild: bool = False) -> list[TableReport]:
        """Merge what waits into the named mirrors, or into all that are configured.

        Each is a mirror of its own: all get their turn before the first failure is raised.

        Args:
            rebuild: make them anew of their whole changelogs, in one commit each.

        Raises:
            NeveError: one of them failed; it is as its last commit left it.
        """
        from neve.errors import NeveError
        from neve.merge.apply import configured_mergers

        reports, failures = [], []
        for merger in configured_mergers(self, tables, self.report):
            try:
                reports.append(merger.rebuild() if rebuild else merger.merge())
            except NeveError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return reports

    def preview_merge(self, *tables: str, rebuild: bool = False) -> list[Preview]:
        """Say what the next commit to each mirror would change. Writes nothing.

        Args:
            rebuild: say it of a rebuild.

        Raises:
            NeveError: one of them cannot be merged as it is.
        """
        from neve.merge.apply import configured_mergers

        mergers = configured_mergers(self, tables, self.report)
        return [one.preview(rebuild=rebuild) for one in mergers]


def open_lake(
    config: str | Path | Settings | None = None, report: Callable[[str], None] | None = None
) -> OpenLake:
    """Open a lake from a configuration file, settings, or the embedded default."""
    settings = read_settings(config)
    return OpenLake(settings, report) if report else OpenLake(settings)
