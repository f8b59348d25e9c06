"""``pillion`` with a clock of its own.

``python -m support.chaos_deliverer CLOCK COMMAND …``: the file CLOCK holds two doubles, in seconds.
The first is added to the wall clock, and may be changed while the process runs; the second to the
monotonic clock, which begins somewhere else at each start, as after a reboot.
"""

import mmap
import struct
import sys
import time
from pathlib import Path

OFFSETS = struct.Struct("<dd")


def set_clock(file: Path, *, wall: float, monotonic: float) -> None:
    """Write the file, or change it in place."""
    if not file.exists():
        file.write_bytes(bytes(OFFSETS.size))
    with file.open("r+b") as opened:
        opened.write(OFFSETS.pack(wall, monotonic))


def move_clocks(file: Path) -> None:
    """Add the file's offsets to this process's clocks; before anything has read them."""
    with file.open("rb") as opened:
        offsets = mmap.mmap(opened.fileno(), OFFSETS.size, prot=mmap.PROT_READ)
    wall, monotonic = time.time, time.monotonic
    _, begun = OFFSETS.unpack(offsets)
    time.time = lambda: wall() + OFFSETS.unpack(offsets)[0]
    time.monotonic = lambda: monotonic() + begun


if __name__ == "__main__":
    move_clocks(Path(sys.argv[1]))
    from pillion_cli.main import main

    sys.argv[:2] = ["pillion"]
    sys.exit(main())
