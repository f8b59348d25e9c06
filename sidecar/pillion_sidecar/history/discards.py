"""The list of discards: those of the history, and before them the list that earlier versions have
written, one JSON object a line."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pillion_sidecar.history.files import kept_in, read_lock
from pillion_sidecar.history.outcome import Discard, OutcomeQuery, OutcomeResult, discard_of
from pillion_sidecar.history.reading import Kept, read_all

_LOCK_NAME = "discards.lock"
_PREFIX, _SUFFIX = "discards-", ".ndjson"
_DIGITS = 8
_decode = msgspec.json.Decoder(Discard).decode


def lists_discards(folder: Path) -> bool:
    """Blocks; raises OSError."""
    return folder.is_dir() and bool(kept_in(folder) or _parts(folder))


def read_discards(
    kept: Kept, query: OutcomeQuery, *, through: int | None = None
) -> Iterator[Discard]:
    """Yield the discards of a query, oldest first, up to the number ``through``. Blocks; raises
    OSError."""
    if kept.folder is not None:
        yield from _read_list(kept.folder, query)
    for one in read_all(kept, query):
        if through is None or one.number <= through:
            yield discard_of(one.outcome)


def encode_discard(discard: Discard) -> bytes:
    return msgspec.json.encode(discard) + b"\n"


def count_unlisted(folder: Path) -> int:
    """Return how many discards are not listed any more. Blocks; raises OSError."""
    lock = read_lock(folder)
    return _count_not_in_list(folder) + (0 if lock is None else lock.removed_discards)


def _parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _is_part(path.name) and path.is_file())


def _read_list(folder: Path, query: OutcomeQuery) -> Iterator[Discard]:
    for path in _parts(folder):
        with path.open("rb") as file:
            yield from (one for one in _discards_of(file) if _matches(query, one))


def _is_part(name: str) -> bool:
    digits = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return len(digits) >= _DIGITS and digits.isascii() and digits.isdecimal()


def _discards_of(lines: Iterable[bytes]) -> Iterator[Discard]:
    for line in lines:
        # Not a discard: the end of a run, a torn line.
        try:
            yield _decode(line)
        except msgspec.MsgspecError:
            continue


def _matches(query: OutcomeQuery, discard: Discard) -> bool:
    at = discard.time.timestamp()
    return (
        query.result in (None, OutcomeResult.DISCARDED)
        and query.destination in (None, discard.destination)
        and query.reason in (None, discard.reason)
        and query.source in (None, discard.source)
        and query.identifier in (None, discard.identifier)
        and (query.since is None or at >= query.since)
        and (query.until is None or at < query.until)
    )


def _count_not_in_list(folder: Path) -> int:
    try:
        digits = (folder / _LOCK_NAME).read_bytes()[:20]
    except FileNotFoundError:
        return 0
    return int(digits) if digits.isdigit() else 0
