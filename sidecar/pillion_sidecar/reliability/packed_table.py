"""A table of digests in small buckets of packed records."""

import math
from collections.abc import Iterable, Sequence
from struct import Struct

from pillion_sidecar.reliability.identity import DIGEST_SIZE

#: Mean records in a bucket of a full table; buckets are at least half as full.
MEAN_RECORDS = 32
LAST_TICK = (1 << 32) - 1
#: Above every state.
LAST_STATE = 1 << 8
#: digest, expiry in ticks, state, name.
_RECORD = Struct(f"<{DIGEST_SIZE}sIBH")
SIZE = _RECORD.size
_CONTENT = Struct("<IBH")
_EXPIRY = Struct("<I")
_EXPIRY_AT = DIGEST_SIZE
_STATE = Struct("<BH")
_STATE_AT = DIGEST_SIZE + _EXPIRY.size


class PackedTable:
    """Maps digests to (state, name) until an expiry in ticks.

    It almost certainly holds the last ``capacity`` records, and at most three quarters more:
    buckets fill unevenly and have three standard deviations of reserve. Records are fixed in size
    and in order of arrival; a full bucket drops its oldest. Nothing is moved or swept as a whole,
    so growth and expiry never block the event loop. Measurements:
    docs/decisions/0005-duplicate-memory.md.
    """

    def __init__(self, capacity: int) -> None:
        buckets = 1 << max(0, (capacity // MEAN_RECORDS).bit_length())
        self._mask = buckets - 1
        self._buckets: list[bytearray | None] = [None] * buckets
        self._full = SIZE * _records_for(capacity, buckets)
        self.entries = 0
        self.evictions = 0
        self.last_expiry = 0
        # Before the first expiry there is nothing to look for.
        self._first_expiry = LAST_TICK

    def resize(self, capacity: int) -> bool:
        """Change the capacity if the number of buckets stays; return whether it did."""
        if 1 << max(0, (capacity // MEAN_RECORDS).bit_length()) != len(self._buckets):
            return False
        self._full = SIZE * _records_for(capacity, len(self._buckets))
        return True

    def find(self, digest: bytes) -> tuple[int, int, int] | None:
        """Return (expiry, state, name), expired or not, or None."""
        bucket = self._buckets[hash(digest) & self._mask]
        # Usually it is absent, which one search in C shows.
        if bucket is None or (position := bucket.find(digest)) < 0:
            return None
        if position % SIZE and (position := _aligned(bucket, digest, position)) < 0:
            return None
        expiry, state, name = _CONTENT.unpack_from(bucket, position + DIGEST_SIZE)
        return expiry, state, name

    def add(self, digests: Iterable[bytes], expiry: int, state: int, now: int) -> None:
        """Add records that :meth:`find` does not know."""
        content = _CONTENT.pack(expiry, state, 0)
        buckets, mask, full = self._buckets, self._mask, self._full
        for digest in digests:
            index = hash(digest) & mask
            bucket = buckets[index]
            if bucket is None:
                bucket = buckets[index] = bytearray()
            elif len(bucket) >= full or self._first_expiry <= now:
                self._make_room(bucket, now)
            bucket += digest
            bucket += content
            self.entries += 1
        if expiry > self.last_expiry:
            self.last_expiry = expiry
        if expiry < self._first_expiry:
            self._first_expiry = expiry

    def suspects(self, digests: Sequence[bytes | None]) -> list[int]:
        """Return the indices of those that may have a record, or repeat one before; None is new."""
        buckets, mask = self._buckets, self._mask
        seen: set[bytes] = set()
        found = []
        for index, digest in enumerate(digests):
            if digest is None:
                continue
            bucket = buckets[hash(digest) & mask]
            if digest in seen or (bucket is not None and digest in bucket):
                found.append(index)
            else:
                seen.add(digest)
        return found

    def restore(self, digest: bytes, expiry: int, state: int, name: int) -> None:
        """Add or replace a record of an earlier run. Nothing expires meanwhile."""
        index = hash(digest) & self._mask
        bucket = self._buckets[index]
        if bucket is None:
            bucket = self._buckets[index] = bytearray()
        elif (position := bucket.find(digest)) >= 0:
            position = _aligned(bucket, digest, position)
            if position >= 0:
                del bucket[position : position + SIZE]
                self.entries -= 1
        if len(bucket) >= self._full:
            self._make_room(bucket, 0)
        bucket += _RECORD.pack(digest, expiry, state, name)
        self.entries += 1
        if expiry > self.last_expiry:
            self.last_expiry = expiry
        if expiry < self._first_expiry:
            self._first_expiry = expiry

    def restore_all(self, digests: Iterable[bytes], expiry: int, state: int) -> None:
        """:meth:`restore` of many."""
        content = _CONTENT.pack(expiry, state, 0)
        buckets, mask, full = self._buckets, self._mask, self._full
        added = 0
        for digest in digests:
            index = hash(digest) & mask
            bucket = buckets[index]
            if bucket is None:
                bucket = buckets[index] = bytearray()
            elif len(bucket) >= full or digest in bucket:
                self.restore(digest, expiry, state, 0)
                continue
            bucket += digest
            bucket += content
            added += 1
        self.entries += added
        if added:
            self.last_expiry = max(self.last_expiry, expiry)
            self._first_expiry = min(self._first_expiry, expiry)

    def _make_room(self, bucket: bytearray, now: int) -> None:
        while bucket:
            expired = _EXPIRY.unpack_from(bucket, _EXPIRY_AT)[0] <= now
            if not expired:
                if len(bucket) < self._full:
                    return
                self.evictions += 1
            del bucket[:SIZE]
            self.entries -= 1

    def update(self, digest: bytes, *, state: int, name: int, final: int) -> bool:
        """Change (state, name) of a record whose state is below ``final``; return whether there was
        one."""
        bucket = self._buckets[hash(digest) & self._mask]
        if bucket is None:
            return False
        position = bucket.find(digest)
        if position % SIZE:
            position = _aligned(bucket, digest, position)
        if position < 0 or bucket[position + _STATE_AT] >= final:
            return False
        _STATE.pack_into(bucket, position + _STATE_AT, state, name)
        return True

    def remove(self, digest: bytes) -> None:
        """Remove a record, if present; its space is reused when the bucket needs it."""
        bucket = self._buckets[hash(digest) & self._mask]
        if bucket is None:
            return
        position = _aligned(bucket, digest, bucket.find(digest))
        if position >= 0:
            _wipe(bucket, position)


def _records_for(capacity: int, buckets: int) -> int:
    if buckets == 1:
        return capacity
    mean = capacity / buckets
    return math.ceil(mean + 3 * math.sqrt(mean))


def _aligned(bucket: bytearray, digest: bytes, position: int) -> int:
    while position >= 0 and position % SIZE:
        position = bucket.find(digest, position + 1)
    return position


def _wipe(bucket: bytearray, position: int) -> None:
    bucket[position : position + _STATE_AT] = bytes(_STATE_AT)
