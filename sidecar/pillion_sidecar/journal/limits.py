"""How much a journal may hold, worked out from how much its folder may take. Pure."""

from dataclasses import dataclass

from pillion_sidecar.config.schema.service import Durability

MIB = 1 << 20
#: The least that a folder can be bounded to: smaller ones leave no room to copy forward.
MINIMUM_BYTES = 8 * MIB
#: What an identity takes on disk, with room for its share of names.
IDENTITY_BYTES = 48
#: Of the bound of live bytes, how much makes the destination that holds most give way.
OVER = 0.9
#: Reserved beyond what is accepted, so that settlements find room on a full disk.
MARGIN = 256 << 10
#: The least that is worth reserving.
MINIMUM_STEP = 64 << 10
#: Bytes that may wait in memory for a disk that is slower than the publishers.
MAXIMUM_WAITING = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """What a journal is told.

    Raises:
        ValueError: ``maximum_bytes`` is too small.
    """

    durability: Durability
    #: The most that the folder may take.
    maximum_bytes: int = 1 << 30
    #: Size at which a segment is followed by the next (S3.12); None: by ``maximum_bytes``.
    segment_bytes: int | None = None
    #: Age in seconds at which a segment that holds anything is followed by the next (S3.12).
    segment_seconds: float = 3600.0
    #: Identities of settled indications that are remembered over restarts, at most.
    identities: int = 1_000_000
    #: For how many seconds, where an indication had no ``expires``.
    identity_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        if self.maximum_bytes < MINIMUM_BYTES:
            raise ValueError(
                f"the journal may take {self.maximum_bytes} bytes, and needs {MINIMUM_BYTES}"
            )

    @property
    def roll_at(self) -> int:
        """Bytes at which a segment is followed by the next."""
        return self.segment_bytes or max(MIB, min(16 * MIB, self.maximum_bytes // 16))

    @property
    def live_bound(self) -> int:
        """Bytes of pending records at most: the folder takes twice as much, the segment that is
        written, one that is reserved, and the identities."""
        return (self.maximum_bytes - self.maximum_bytes // 16 - 2 * self.roll_at) // 2

    @property
    def identity_entries(self) -> int:
        """Identities kept in files of their own, at most."""
        return min(self.identities, self.maximum_bytes // 16 // IDENTITY_BYTES)

    @property
    def step(self) -> int:
        """Bytes reserved at once."""
        return max(MINIMUM_STEP, min(4 * MIB, self.roll_at // 4))
