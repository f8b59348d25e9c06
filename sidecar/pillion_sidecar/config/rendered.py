"""A configuration as files that the operator writes into Secrets and a pod mounts. A ``v1 List`` in
JSON, compressed and cut into parts. File names contain the revision (a digest), so files of several
revisions can be mixed; only a complete revision is used."""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Bytes; a Secret holds 1 MiB including its other keys.
PART_SIZE = 900_000
#: The Secrets that every pod mounts.
MOST_PARTS = 16
#: The limit for a folder of resource files too.
MOST_TEXT_BYTES = 64 * 1024 * 1024

#: Items that are compressed together.
TOGETHER = 500

_NAME = re.compile(r"([0-9a-f]{16})\.part-([0-9]{2})-of-([0-9]{2})")
_HEAD = '{"apiVersion":"v1","kind":"List","items":['
_BETWEEN = ",\n"
_TAIL = "]}\n"
_COMPRESSION = 6
#: A gzip header without a time (RFC 1952), and an empty block as the last one.
_GZIP_HEAD = bytes.fromhex("1f8b08000000000000ff")
_GZIP_END = bytes.fromhex("0300")
_SPACE = re.compile(r"[ \t\r\n]*")


class TooLarge(Exception):
    """The configuration has ``bytes`` bytes; the limit is ``most``."""

    def __init__(self, size: int, most: int, *, compressed: bool = True) -> None:
        how = " compressed" if compressed else ""
        super().__init__(
            f"the configuration takes {size:,} bytes{how}, more than the {most:,} that there is "
            "room for: spread the subscriptions over several services"
        )
        self.bytes = size
        self.most = most


class CorruptRevisionError(Exception):
    """A complete revision whose content does not match its names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    revision: str
    files: tuple[tuple[str, bytes], ...]

    def __repr__(self) -> str:
        return f"Rendered({self.revision!r}, {len(self.files)} files)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    revision: str
    text: str

    def __repr__(self) -> str:
        return f"Unpacked({self.revision!r})"


def render(resources: Iterable[Mapping[str, Any]]) -> str:
    """Return the text; independent of the order. Each resource has ``kind`` and
    ``metadata.name``."""
    ordered = sorted(resources, key=lambda one: (one["kind"], one["metadata"]["name"]))
    return render_items([item_text(resource) for resource in ordered])


def item_text(resource: Mapping[str, Any]) -> str:
    """Return the text of one resource, for callers that cache unchanged ones."""
    return json.dumps(resource, sort_keys=True, separators=(",", ":"))


def render_items(items: Sequence[str]) -> str:
    """Join items of :func:`item_text` in the given order; :func:`render` sorts them."""
    # One item to a line, for diffs.
    return "\n".join((_HEAD, _lines(items), _TAIL)) if items else _HEAD + _TAIL


def _lines(items: Iterable[str]) -> str:
    return _BETWEEN.join(items)


def revision_of(text: str) -> str:
    """The first 16 hex digits of the text's SHA-256."""
    return _digest(text.encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def pack(text: str, *, part_size: int = PART_SIZE, most_parts: int = MOST_PARTS) -> Rendered:
    """Compress a text and cut it into files, deterministically.

    Raises:
        TooLarge: more than ``most_parts`` files, or more text than a deliverer reads.
    """
    content = _bounded(text)
    return _files(content, _compressed(content), part_size=part_size, most_parts=most_parts)


def _bounded(text: str) -> bytes:
    content = text.encode()
    if len(content) > MOST_TEXT_BYTES:
        raise TooLarge(len(content), MOST_TEXT_BYTES, compressed=False)
    return content


def _compressed(content: bytes) -> bytes:
    # No time, so that equal texts make equal files.
    return gzip.compress(content, compresslevel=_COMPRESSION, mtime=0)


def _files(content: bytes, packed: bytes, *, part_size: int, most_parts: int) -> Rendered:
    if len(packed) > part_size * most_parts:
        raise TooLarge(len(packed), part_size * most_parts)
    revision = _digest(content)
    parts = [packed[start : start + part_size] for start in range(0, len(packed), part_size)]
    names = (f"{revision}.part-{number:02}-of-{len(parts):02}" for number in range(1, 100))
    return Rendered(revision=revision, files=tuple(zip(names, parts, strict=False)))


class Packer:
    """Packs one version of a configuration after the other, and compresses only what has changed.
    The files depend on the items alone, not on the versions before."""

    def __init__(self) -> None:
        #: By items that are compressed together, the blocks of DEFLATE (RFC 1951).
        self._known: dict[tuple[str, ...], bytes] = {}

    def pack(self, items: Sequence[str], *, most_parts: int = MOST_PARTS) -> Rendered:
        """Like :func:`pack` with the text of :func:`render_items`."""
        content = _bounded(render_items(items))
        if len(items) <= TOGETHER:
            return _files(content, _compressed(content), part_size=PART_SIZE, most_parts=most_parts)
        packed = self._joined(content, items)
        if len(packed) > PART_SIZE * most_parts:
            # In one piece it takes a little less.
            packed = _compressed(content)
        return _files(content, packed, part_size=PART_SIZE, most_parts=most_parts)

    def _joined(self, content: bytes, items: Sequence[str]) -> bytes:
        pieces = [
            tuple(items[start : start + TOGETHER]) for start in range(0, len(items), TOGETHER)
        ]
        known, self._known = self._known, {}
        for piece in pieces:
            found = known.get(piece)
            self._known[piece] = _blocks(_lines(piece)) if found is None else found
        between, end = _blocks(_BETWEEN), _blocks("\n" + _TAIL)
        return b"".join(
            (
                _GZIP_HEAD,
                _blocks(_HEAD + "\n"),
                between.join(self._known[piece] for piece in pieces),
                end,
                _GZIP_END,
                zlib.crc32(content).to_bytes(4, "little"),
                len(content).to_bytes(4, "little"),
            )
        )


def _blocks(text: str) -> bytes:
    """Compress a text to whole bytes that refer to nothing before them."""
    compressor = zlib.compressobj(_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(text.encode()) + compressor.flush(zlib.Z_FULL_FLUSH)


def is_part(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def complete_revisions(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return complete revisions, each with its names in order, by their first file in ``names``."""
    numbers: dict[tuple[str, int], dict[int, str]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            numbers.setdefault((match[1], int(match[3])), {})[int(match[2])] = name
    found: dict[str, tuple[str, ...]] = {}
    for (revision, count), known in numbers.items():
        wanted = range(1, count + 1)
        if count and all(number in known for number in wanted):
            found.setdefault(revision, tuple(known[number] for number in wanted))
    return found


def unpack(files: Mapping[str, bytes]) -> Unpacked | None:
    """Return the first complete revision in ``files``, or None.

    Raises:
        CorruptRevisionError: the content does not match the names.
    """
    for revision, names in complete_revisions(files).items():
        content = _decompressed(revision, b"".join(files[name] for name in names))
        if _digest(content) != revision:
            raise CorruptRevisionError(f"revision {revision} holds another text than its name says")
        try:
            return Unpacked(revision=revision, text=content.decode())
        except UnicodeDecodeError:
            raise CorruptRevisionError(f"revision {revision} is not UTF-8") from None
    return None


def _decompressed(revision: str, packed: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        # Bounded, whatever the compressed bytes claim.
        content = stream.decompress(packed, MOST_TEXT_BYTES + 1)
    except zlib.error:
        raise CorruptRevisionError(f"revision {revision} is not in gzip's form") from None
    if len(content) > MOST_TEXT_BYTES:
        bound = MOST_TEXT_BYTES // 1024**2
        raise CorruptRevisionError(f"revision {revision} holds more than {bound} MiB")
    if not stream.eof or stream.unused_data:
        raise CorruptRevisionError(f"revision {revision} is cut off, or longer than its text")
    return content


def items(text: str) -> Iterator[Any]:
    """Yield items one at a time: parsing all at once would block every other thread. Raises
    ValueError if the text is no rendered configuration."""
    if not text.startswith(_HEAD):
        raise ValueError("it does not begin like a rendered configuration")
    decode = json.JSONDecoder().raw_decode
    position = _past_space(text, len(_HEAD))
    while not text.startswith("]", position):
        try:
            item, position = decode(text, position)
        except RecursionError:
            raise ValueError("its objects and lists are nested too deeply") from None
        yield item
        position = _past_space(text, position)
        if text.startswith(",", position):
            position = _past_space(text, position + 1)
        elif not text.startswith("]", position):
            raise ValueError(f"a comma or the end is missing at character {position:,}")
    if text[position:].strip() != _TAIL.strip():
        raise ValueError("there is text after its end")


def _past_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
