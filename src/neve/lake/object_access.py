"""How a bucket is reached and with which credentials; made from a catalog's profile. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from neve.lake.profile import CatalogProfile


@dataclass(frozen=True)
class ObjectAccess:
    """One store and one login. Two that are equal may copy files inside the store."""

    endpoint: str | None
    region: str | None
    path_style: bool
    access_key_id: str | None = field(repr=False)
    secret_access_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)
    connect_timeout_seconds: float
    timeout_seconds: float

    def bucket_endpoint(self, bucket: str) -> str | None:
        """Return the endpoint as obstore wants it: with the bucket where the host has it."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        parts = urlsplit(self.endpoint)
        return urlunsplit(parts._replace(netloc=f"{bucket}.{parts.netloc}"))


def object_access(profile: CatalogProfile, vended: Mapping[str, str]) -> ObjectAccess:
    """Return how this catalog's files are reached.

    Args:
        vended: properties that the catalog gave out for a table; they replace the profile's.
    """
    properties = {**profile.pyiceberg_properties(), **vended}
    endpoint = properties.get("s3.endpoint")
    path_style = properties.get("s3.path-style-access", str(profile.storage.path_style)).lower()
    return ObjectAccess(
        endpoint=endpoint,
        region=properties.get("s3.region") or properties.get("client.region"),
        path_style=path_style == "true" or _has_no_subdomains(endpoint),
        access_key_id=properties.get("s3.access-key-id"),
        secret_access_key=properties.get("s3.secret-access-key"),
        session_token=properties.get("s3.session-token"),
        connect_timeout_seconds=float(properties["s3.connect-timeout"]),
        timeout_seconds=float(properties["s3.request-timeout"]),
    )


def file_io_access(properties: Mapping[str, str]) -> ObjectAccess:
    """Return how the store is reached that a FileIO has these properties of, as it does itself."""
    endpoint = properties.get("s3.endpoint")
    is_virtual = properties.get("s3.force-virtual-addressing", "").lower() == "true"
    return ObjectAccess(
        endpoint=endpoint,
        region=properties.get("s3.region") or properties.get("client.region"),
        path_style=endpoint is not None and not is_virtual,
        access_key_id=properties.get("s3.access-key-id"),
        secret_access_key=properties.get("s3.secret-access-key"),
        session_token=properties.get("s3.session-token"),
        connect_timeout_seconds=float(properties.get("s3.connect-timeout", 10)),
        timeout_seconds=float(properties.get("s3.request-timeout", 60)),
    )


def _has_no_subdomains(endpoint: str | None) -> bool:
    host = urlsplit(endpoint or "").hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
