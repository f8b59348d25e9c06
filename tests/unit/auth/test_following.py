"""Files that are read anew when they change."""

import asyncio
from pathlib import Path

import pytest

from pillion_sidecar.filewatch import LOOK_SECONDS, Following, Unusable, look_again
from pillion_sidecar.testing import FakeTime


class Reader:
    """Reads a file as text, and notes what it was told."""

    def __init__(self, *files: Path) -> None:
        self.files = files
        self.reads = 0
        self.told: list[str] = []
        self.following = Following(
            files, read=self.read, changed=self.told.append, refused=self.refused
        )

    def read(self) -> str:
        self.reads += 1
        try:
            content = " ".join(file.read_text() for file in self.files)
        except OSError as error:
            raise Unusable(f"{error.strerror}") from None
        if "bad" in content:
            raise Unusable("it is bad")
        return content

    def refused(self, error: Unusable) -> None:
        self.told.append(f"refused: {error}")


async def test_a_file_is_read_once_for_each_change(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    reader = Reader(file)
    for _ in range(2):
        await reader.following.look()
    file.write_text("one")
    for _ in range(3):
        await reader.following.look()
    file.write_text("bad")
    for _ in range(2):
        await reader.following.look()
    file.unlink()
    await reader.following.look()
    missing = "refused: No such file or directory"
    assert reader.told == [missing, "one", "refused: it is bad", missing]
    assert reader.reads == 4


async def test_the_swap_of_a_volume_is_seen(tmp_path: Path) -> None:
    """As Kubernetes does it: files are links into ``..data``, which is a link that is replaced."""
    for number in ("1", "2"):
        (tmp_path / f"..{number}").mkdir()
        for name in ("crt", "key"):
            (tmp_path / f"..{number}" / name).write_text(f"{name}-{number}")
    (tmp_path / "..data").symlink_to("..1")
    for name in ("crt", "key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    reader = Reader(tmp_path / "crt", tmp_path / "key")
    await reader.following.look()
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    await reader.following.look()
    assert reader.told == ["crt-1 key-1", "crt-2 key-2"]


async def test_what_changes_while_it_is_read_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one")
    reader = Reader(file)

    def mixed() -> str:
        file.write_text("longer")
        return "half of each"

    torn = Following((file,), read=mixed, changed=reader.told.append, refused=reader.refused)
    await torn.look()
    assert reader.told == []
    # Now nothing changes under its hands: what it writes is there already.
    (file).write_text("longer")
    await reader.following.look()
    assert reader.told == ["longer"]


async def test_files_are_looked_at_from_time_to_time(tmp_path: Path, fake_time: FakeTime) -> None:
    file = tmp_path / "keys"
    file.write_text("one")
    told: asyncio.Queue[str] = asyncio.Queue()
    following = Following(
        (file,), read=file.read_text, changed=told.put_nowait, refused=lambda _: None
    )
    looking = asyncio.create_task(look_again([following], timers=fake_time))
    for content in ("one", "another"):
        file.write_text(content)
        while fake_time.next_due() is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        fake_time.advance(LOOK_SECONDS)
        assert await told.get() == content
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking


async def test_nothing_to_follow_is_nothing_to_do(fake_time: FakeTime) -> None:
    await look_again([], timers=fake_time)
    assert fake_time.next_due() is None
