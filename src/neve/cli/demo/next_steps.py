"""How the demo ends: what to look at, and how to send something of one's own."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from neve.cli.demo import mirror, tables

_OWN_LOG = """\
  {"resourceLogs": [{
    "resource": {"attributes": [
      {"key": "service.name", "value": {"stringValue": "mine"}}]},
    "scopeLogs": [{"logRecords": [{"body": {"stringValue": "hello"}}]}]}]}"""
_OWN_QUERY = "SELECT received_at, body FROM otel.logs WHERE service_name = 'mine'"


def next_steps(config: Path, http: str) -> str:
    """Return lines to copy, right for where the demo ran.

    Args:
        http: the address at which `neve run` will receive OTLP over HTTP.
    """
    neve = f"{_command()} -c {shlex.quote(str(config))}"
    return f"""
Everything acknowledged was kept, once, and all three engines agree.
The lake stays in {config.parent}; look around:
  {neve} tables
  {neve} describe {tables.TRACES}
  {neve} health
  {neve} staged list
  {neve} merge --dry-run
  {neve} changes {mirror.MIRROR}
  {neve} move status
  {neve} sql "{" ".join(tables.ERRORS.split())}"

Now send your own. Start the service, which goes on until Ctrl-C:
  {neve} run
In another terminal send a log record; every OpenTelemetry SDK sends the same:
  curl http://{http}/v1/logs -H 'Content-Type: application/json' -d '
{_OWN_LOG}'
A few seconds later the service says that it is in its table:
  {neve} sql "{_OWN_QUERY}"
docs/tutorial.md goes on from here, with a program of your own."""


def _command() -> str:
    """Return how this command can be typed here."""
    ours = sys.argv[0]
    on_path = shutil.which("neve")
    if on_path and Path(ours).exists() and Path(ours).samefile(on_path):
        return "neve"
    return shlex.quote(ours)
