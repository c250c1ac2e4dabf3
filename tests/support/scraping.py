"""The metrics and health of a service, as a monitor asks for them."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass


@dataclass(frozen=True)
class Scraped:
    """A service that tells about itself on a loopback port."""

    port: int

    def get(self, path: str) -> tuple[int | None, str]:
        """Return status and body; no status while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return None, ""

    @property
    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def sample(self, name: str, **labels: str) -> float | None:
        """Add up the samples of a metric that have these labels; None if there is none."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = [
            float(line.rpartition(" ")[2])
            for line in self.get("/metrics")[1].splitlines()
            if line.startswith((f"{name}{{", f"{name} ")) and all(one in line for one in wanted)
        ]
        return sum(found) if found else None
