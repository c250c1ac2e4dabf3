"""The limits on what a sender may cause, in one place, each with its reason.

A request costs what it weighs: it is counted on the wire before anything is built from it, and
refused by these counts. Limits that users set are settings (`receive`, `buffer`); what is here are
their defaults and the bounds they must agree with.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# One request, before and after decompression: what the OTLP specification recommends.
DEFAULT_REQUEST_BYTES = 64 * MIB
# The largest `receive.max_request_bytes`. JSON writes some bytes as six (\u0000), and
# an Arrow string array holds 2 GiB: a longer request could not be decoded.
LARGEST_REQUEST_BYTES = 256 * MIB

# All requests in progress, as received and as unpacked: what bounds the receiver's memory.
IN_FLIGHT_BYTES = 128 * MIB
# Requests of one signal that wait for their commit.
PENDING_BYTES = 64 * MIB

# Dead letters: a sender of unusable records must not fill the disk. Past it the oldest go.
DEAD_LETTERS_BYTES = 1024 * MIB

# A record that says anything takes a dozen bytes, so no honest request of 64 MiB has this many.
MAX_RECORDS = 1_000_000
# Messages inside messages: the limit of protobuf's own parsers.
MAX_DEPTH = 100
