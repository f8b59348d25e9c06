"""Segments that are kept open for reading: those that were asked for last."""

from collections import OrderedDict

from pillion_sidecar.journal.files import File, Files
from pillion_sidecar.journal.segments import segment_name

#: Files that are kept open.
_MOST = 32


class OpenSegments:
    """Files of segments by number; the one that was not asked for longest gives way."""

    __slots__ = ("_files", "_open")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open: OrderedDict[int, File] = OrderedDict()

    def get(self, number: int) -> File:
        """Return the file of a segment. Raises OSError."""
        file = self._open.get(number)
        if file is not None:
            self._open.move_to_end(number)
            return file
        file = self._open[number] = self._files.open(segment_name(number))
        if len(self._open) > _MOST:
            self._open.popitem(last=False)[1].close()
        return file

    def forget(self, number: int) -> None:
        """Close a segment that is removed: its room is free only when nobody has it open."""
        file = self._open.pop(number, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        for number in list(self._open):
            self.forget(number)
