"""A packed table of identities: small buckets of fixed records in order of arrival.

A bucket that is full forgets its oldest record. So nothing is ever moved or swept as a whole: an
operation touches one bucket, and neither growth nor expiry stalls the event loop.
``docs/decisions/0005-duplicate-memory.md`` has the measurements.
"""

import math
from struct import Struct

from pillion_sidecar.reliability.identity import DIGEST_SIZE

#: Mean records in a bucket when the table holds its capacity: between this and half of it.
MEAN_RECORDS = 32
#: Times are kept in ticks of a sixteenth of a second, which lasts for eight years.
TICKS_PER_SECOND = 16
LAST_TICK = (1 << 32) - 1
#: Every state is below this.
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
    """Maps digests to (state, name), each until its expiry. All times are in ticks.

    Holds at least the last ``capacity`` records with all but certainty, and at most three quarters
    as many again: buckets fill unevenly, so each has room for three standard deviations more.
    """

    def __init__(self, capacity: int) -> None:
        """``capacity`` >= 1."""
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
        """Take another capacity, if that needs no other number of buckets; return whether so."""
        if 1 << max(0, (capacity // MEAN_RECORDS).bit_length()) != len(self._buckets):
            return False
        self._full = SIZE * _records_for(capacity, len(self._buckets))
        return True

    def find(self, digest: bytes) -> tuple[int, int, int] | None:
        """Return (expiry, state, name) of a record, even if its time is over; None without one."""
        bucket = self._buckets[hash(digest) & self._mask]
        # The usual answer is "not here", and one search in C says so.
        if bucket is None or (position := bucket.find(digest)) < 0:
            return None
        position = _aligned(bucket, digest, position)
        if position < 0:
            return None
        expiry, state, name = _CONTENT.unpack_from(bucket, position + DIGEST_SIZE)
        return expiry, state, name

    def add(self, digest: bytes, expiry: int, state: int, now: int) -> None:
        """Add a record that :meth:`find` does not know."""
        index = hash(digest) & self._mask
        bucket = self._buckets[index]
        if bucket is None:
            bucket = self._buckets[index] = bytearray()
        elif len(bucket) >= self._full or self._first_expiry <= now:
            self._make_room(bucket, now)
        bucket += _RECORD.pack(digest, expiry, state, 0)
        self.entries += 1
        if expiry > self.last_expiry:
            self.last_expiry = expiry
        if expiry < self._first_expiry:
            self._first_expiry = expiry

    def restore(self, digest: bytes, expiry: int, state: int, name: int) -> None:
        """Add a record of a run before, or put it in the place of what was restored under its
        digest. Nothing expires meanwhile."""
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
        """Change (state, name) of a record, if it is still there and its state is not ``final``
        or beyond; return whether that was so."""
        bucket = self._buckets[hash(digest) & self._mask]
        if bucket is None:
            return False
        position = _aligned(bucket, digest, bucket.find(digest))
        if position < 0 or bucket[position + _STATE_AT] >= final:
            return False
        _STATE.pack_into(bucket, position + _STATE_AT, state, name)
        return True

    def remove(self, digest: bytes) -> None:
        """Forget a record, if it is there; its room is freed when its bucket needs it."""
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
    """Return where the record of ``digest`` begins, searching on from a first match; -1 without.

    A match that does not begin a record is chance: the bytes of two neighbours.
    """
    while position >= 0 and position % SIZE:
        position = bucket.find(digest, position + 1)
    return position


def _wipe(bucket: bytearray, position: int) -> None:
    bucket[position : position + _STATE_AT] = bytes(_STATE_AT)
