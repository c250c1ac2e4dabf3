"""MurmurHash3_x64_128 of many values at once, in numpy: the loops are over blocks, not values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.index.splitmix import ALL_BITS, Hashes, splitmix64

# The multipliers of the published function.
_MULTIPLIERS = 0x87C37B91114253D5, 0x4CF5AD432745937F
_BLOCK_BYTES = 16
# Values hashed at once: their words and hashes stay in the processor's cache.
_CHUNK_ROWS = 8192
# A longer value is hashed by BLAKE2b: a loop over its blocks would be long for few values.
_LONG_BYTES = 512
# The n-th keeps the first n bytes of a little-endian word.
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


@dataclass(frozen=True)
class Murmur:
    """The hash function of one seed.

    On values of 16 bytes it is a bijection, since each of its steps is one. The seed 0 gives the
    published function. Any other seed draws its own multipliers, too: with those that everybody
    knows, somebody could compute values that collide whatever the seed is.
    """

    seed: int
    multipliers: tuple[np.uint64, np.uint64]

    @classmethod
    def seeded(cls, seed: int) -> Murmur:
        if not seed:
            return cls(0, (np.uint64(_MULTIPLIERS[0]), np.uint64(_MULTIPLIERS[1])))
        drawn = [splitmix64(splitmix64(seed) ^ number) | 1 for number in (1, 2)]
        return cls(seed & ALL_BITS, (np.uint64(drawn[0]), np.uint64(drawn[1])))

    def hash_words(self, words: Sequence[Hashes]) -> tuple[Hashes, Hashes]:
        """Hash values of as many 64-bit words each as there are arrays, an even number."""
        count, length = len(words[0]), 8 * len(words)

        def hash_chunk(rows: slice) -> tuple[Hashes, Hashes]:
            lengths = np.full(rows.stop - rows.start, length)
            return self._hash_blocks(lengths, lambda at, _: words[at // 8][rows].copy())

        return _in_chunks(count, hash_chunk)

    def hash_bytes(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
    ) -> tuple[Hashes, Hashes]:
        """Hash values that lie one after the other; `offsets` has one more than there are."""

        def hash_chunk(rows: slice) -> tuple[Hashes, Hashes]:
            ends = offsets[rows.start : rows.stop + 1]
            return self._hash_chunk(data[ends[0] : ends[-1]], ends - ends[0])

        return _in_chunks(len(offsets) - 1, hash_chunk)

    def _hash_chunk(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]
    ) -> tuple[Hashes, Hashes]:
        starts, lengths = offsets[:-1], np.diff(offsets)
        padded = np.zeros(len(data) + _BLOCK_BYTES, np.uint8)
        padded[: len(data)] = data
        # The 8 bytes from any offset on, without a copy.
        words = np.lib.stride_tricks.as_strided(padded[:8].view("<u8"), (len(data) + 9,), (1,))
        longest = int(lengths.max())
        if longest <= _LONG_BYTES and longest == int(lengths.min()) > 0:
            return self._hash_blocks(lengths, lambda at, rows: np.array(words[at::longest][:rows]))
        is_long = lengths > _LONG_BYTES
        kept = np.where(is_long, 0, lengths)
        # Values of many blocks first, so that those that have a next block are a prefix.
        order = np.argsort(_LONG_BYTES - (kept // _BLOCK_BYTES).astype(np.uint16), kind="stable")
        starts = starts[order]
        hashes = self._hash_blocks(kept[order], lambda at, rows: words[starts[:rows] + at])
        first, second = np.empty((2, len(lengths)), np.uint64)
        first[order], second[order] = hashes
        for row in np.flatnonzero(is_long).tolist():
            first[row], second[row] = self._hash_long(data[offsets[row] : offsets[row + 1]])
        return first, second

    def _hash_blocks(
        self, lengths: npt.NDArray[np.int64], read: Callable[[Any, int], Hashes]
    ) -> tuple[Hashes, Hashes]:
        """Hash values whose first words at an offset `read` returns, into an array of its own."""
        count, blocks = len(lengths), lengths // _BLOCK_BYTES
        h1, h2, spare = np.full((3, count), np.uint64(self.seed))
        most = int(blocks[0])
        for at in range(0, most * _BLOCK_BYTES, _BLOCK_BYTES):
            rows = int(np.count_nonzero(lengths >= at + _BLOCK_BYTES))
            a, b, temporary = h1[:rows], h2[:rows], spare[:rows]
            a ^= self._mixed(read(at, rows), 0, temporary)
            _rotate(a, 27, temporary)
            a += b
            a *= np.uint64(5)
            a += np.uint64(0x52DCE729)
            b ^= self._mixed(read(at + 8, rows), 1, temporary)
            _rotate(b, 31, temporary)
            b += a
            b *= np.uint64(5)
            b += np.uint64(0x38495AB5)
        rests = lengths % _BLOCK_BYTES
        tails: Any = most * _BLOCK_BYTES if most == blocks[-1] else blocks * _BLOCK_BYTES
        halves = (h1, h2)
        for lane in (0, 1):
            left = rests - 8 * lane
            if left.max() > 0:
                tail = read(tails + 8 * lane, count) & _MASKS[np.clip(left, 0, 8)]
                np.bitwise_xor(halves[lane], self._mixed(tail, lane, spare), out=halves[lane])
        return _finished(h1, h2, lengths.view(np.uint64))

    def _mixed(self, words: Hashes, lane: int, spare: Hashes) -> Hashes:
        words *= self.multipliers[lane]
        _rotate(words, (31, 33)[lane], spare)
        words *= self.multipliers[1 - lane]
        return words

    def _hash_long(self, value: npt.NDArray[np.uint8]) -> Hashes:
        digest = hashlib.blake2b(
            value.tobytes(), digest_size=16, key=self.seed.to_bytes(8, "little")
        )
        return np.frombuffer(digest.digest(), "<u8")


def _in_chunks(
    count: int, hash_chunk: Callable[[slice], tuple[Hashes, Hashes]]
) -> tuple[Hashes, Hashes]:
    hashes = np.empty((2, count), np.uint64)
    for start in range(0, count, _CHUNK_ROWS):
        rows = slice(start, min(start + _CHUNK_ROWS, count))
        hashes[0, rows], hashes[1, rows] = hash_chunk(rows)
    return hashes[0], hashes[1]


def _rotate(values: Hashes, bits: int, spare: Hashes) -> None:
    np.right_shift(values, np.uint64(64 - bits), out=spare)
    values <<= np.uint64(bits)
    values |= spare


def _finished(h1: Hashes, h2: Hashes, lengths: Hashes) -> tuple[Hashes, Hashes]:
    h1 ^= lengths
    h2 ^= lengths
    h1 += h2
    h2 += h1
    _finalize(h1)
    _finalize(h2)
    h1 += h2
    h2 += h1
    return h1, h2


def _finalize(values: Hashes) -> None:
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
