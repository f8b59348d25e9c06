"""The limits of a journal, derived from its folder's maximum bytes. Pure."""

from dataclasses import dataclass

from pillion_sidecar.config.schema.service import Durability

MIB = 1 << 20
#: Minimum bound of a folder: less leaves no space for compaction.
MINIMUM_BYTES = 8 * MIB
#: Bytes of an identity on disk, with its share of names.
IDENTITY_BYTES = 48
#: Fraction of the bound of live bytes at which the fullest destination evicts.
OVER = 0.9
#: Reserved beyond what is accepted, so that settlements fit on a full disk.
MARGIN = 256 << 10
#: Less is not worth reserving.
MINIMUM_STEP = 64 << 10
#: Bytes that may wait in memory for a slow disk.
MAXIMUM_WAITING = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """The settings of a journal.

    Raises ValueError: ``maximum_bytes`` is too small.
    """

    durability: Durability
    #: Maximum bytes of the folder.
    maximum_bytes: int = 1 << 30
    #: Size at which the next segment begins (S3.12); None: derived from ``maximum_bytes``.
    segment_bytes: int | None = None
    #: Age in seconds at which the next segment begins, unless this one is empty (S3.12).
    segment_seconds: float = 3600.0
    #: Maximum number of identities of settled indications that survive a restart.
    identities: int = 1_000_000
    #: Seconds of memory for an indication without ``expires``.
    identity_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        if self.maximum_bytes < MINIMUM_BYTES:
            raise ValueError(
                f"the journal may take {self.maximum_bytes} bytes, and needs {MINIMUM_BYTES}"
            )

    @property
    def roll_at(self) -> int:
        """Bytes at which the next segment begins."""
        return self.segment_bytes or max(MIB, min(16 * MIB, self.maximum_bytes // 16))

    @property
    def live_bound(self) -> int:
        """Maximum bytes of pending records. The folder takes twice that, plus the current segment,
        the reserved one, and the identities."""
        return (self.maximum_bytes - self.maximum_bytes // 16 - 2 * self.roll_at) // 2

    @property
    def identity_entries(self) -> int:
        """Maximum number of identities in files of their own."""
        return min(self.identities, self.maximum_bytes // 16 // IDENTITY_BYTES)

    @property
    def step(self) -> int:
        """Bytes reserved at once."""
        return max(MINIMUM_STEP, min(4 * MIB, self.roll_at // 4))
