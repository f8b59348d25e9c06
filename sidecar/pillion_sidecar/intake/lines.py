"""Lines to indications: the short way for the usual line, the complete one for every other."""

from collections.abc import Callable, Sequence

from pillion_cim.schema import Schema
from pillion_sidecar.intake.acceptance import MAXIMUM_REFUSED, Submission
from pillion_sidecar.intake.decoding import Decoded, InvalidLine, decode_object
from pillion_sidecar.intake.fastpath import FastPath
from pillion_sidecar.intake.jsontext import parse_json
from pillion_sidecar.intake.relayline import RelayFastPath, decode_relayed


class LineDecoder:
    """Decodes the JSON form of indications. Made once; compiling takes some milliseconds."""

    def __init__(
        self,
        schema: Schema,
        *,
        maximum_line_bytes: int,
        is_relayed: bool = False,
        in_force: Callable[[], Schema] | None = None,
    ) -> None:
        """``is_relayed``: of lines that sidecars relay. ``in_force`` gives the classes as they are
        declared by now; None: those of ``schema``."""
        self._in_force = in_force or (lambda: schema)
        self._maximum = maximum_line_bytes
        # Of the packaged classes alone: the others' bodies state types, so they are written anew.
        self._fast = RelayFastPath(schema.base) if is_relayed else FastPath(schema.base)
        self._decode_object = decode_relayed if is_relayed else decode_object

    @property
    def schema(self) -> Schema:
        """The classes in force."""
        return self._in_force()

    def decode(self, line: bytes) -> Decoded:
        """Decode one line, which holds no newline. Raises :class:`InvalidLine`."""
        if len(line) > self._maximum:
            raise self.too_long()
        decoded = self._fast.decode(line)
        return decoded if decoded is not None else self.decode_complete(line)

    def decode_complete(self, line: bytes) -> Decoded:
        """Decode one object the complete way. Raises :class:`InvalidLine`."""
        return self._decode_object(parse_json(line), schema=self.schema)

    def too_long(self) -> InvalidLine:
        """Return the error of a line that is too long."""
        return InvalidLine(f"longer than {self._maximum} bytes")

    def submit(self, lines: Sequence[bytes | None], *, first: int, submission: Submission) -> int:
        """Submit lines, the first of which has the number ``first``; None is one too long.

        Blank lines are skipped. Returns the number of the line after the last one taken: fewer
        than all where no further refusal could be told.
        """
        decode, accept, refused = self._fast.decode, submission.accept, submission.refused
        number = first
        for line in lines:
            try:
                decoded = decode(line) if line else None
                if decoded is None:
                    decoded = self._decode_unusual(line)
                if decoded is not None:
                    accept(decoded, number)
            except InvalidLine as error:
                submission.refuse(error, number)
            number += 1
            if len(refused) >= MAXIMUM_REFUSED:
                break
        return number

    def _decode_unusual(self, line: bytes | None) -> Decoded | None:
        if line is None:
            raise self.too_long()
        if not line or line.isspace():
            return None
        return self.decode_complete(line)
