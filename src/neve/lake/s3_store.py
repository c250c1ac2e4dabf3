"""obstore's client of a bucket. Loads boto3 only where no access key is configured."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from typing import TYPE_CHECKING

from obstore.store import S3Store

from neve.lake.object_access import ObjectAccess

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential

# boto3 renews credentials that expire: obstore asks for them again after this time.
_CREDENTIALS_FOR = timedelta(minutes=5)


def s3_store(bucket: str, access: ObjectAccess) -> S3Store:
    """Return a client that makes each request once: `store_faults.repeated` repeats."""
    config: S3Config = {"virtual_hosted_style_request": not access.path_style}
    if endpoint := access.bucket_endpoint(bucket):
        config["endpoint"] = endpoint
    if access.region:
        config["region"] = access.region
    if access.access_key_id and access.secret_access_key:
        config["access_key_id"] = access.access_key_id
        config["secret_access_key"] = access.secret_access_key
        if access.session_token:
            config["session_token"] = access.session_token
    # Executors have no boto3: obstore itself asks the environment and the machine's role there.
    is_left_to_obstore = access.access_key_id or find_spec("boto3") is None
    return S3Store(
        bucket,
        config=config,
        credential_provider=None if is_left_to_obstore else _default_credentials,
        client_options={
            "allow_http": True,
            "connect_timeout": timedelta(seconds=access.connect_timeout_seconds),
            "read_timeout": timedelta(seconds=access.timeout_seconds),
            # The time a whole request may take is not bounded: large parts on slow lines.
            "timeout": timedelta(days=1),
        },
        retry_config={"max_retries": 0},
    )


def _default_credentials() -> S3Credential:
    """Return what boto3 has: the environment, ~/.aws, the machine's role."""
    import boto3
    from botocore.exceptions import NoCredentialsError

    credentials = boto3.Session().get_credentials()
    if credentials is None:
        raise NoCredentialsError
    frozen = credentials.get_frozen_credentials()
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": datetime.now(timezone.utc) + _CREDENTIALS_FOR,
    }
