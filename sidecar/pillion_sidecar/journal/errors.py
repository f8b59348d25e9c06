"""Why a journal cannot be opened. Each message names the folder or file and the remedy."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class JournalError(Exception):
    """The journal's folder cannot be used as it is."""


class FolderError(JournalError):
    """The folder is missing, is none, or must not be written."""


class LockedError(JournalError):
    """Another process has the journal open."""


class VersionError(JournalError):
    """The journal was written by a newer version."""


class MixedError(JournalError):
    """The folder holds files of more than one journal."""


class UnreadableError(JournalError):
    """The disk failed while the journal was opened."""


_REMEDIES = {
    errno.ENOENT: "make its parent folder first",
    errno.ENOTDIR: "name a folder, not a file",
    errno.EACCES: "let the user that the deliverer runs as read, write and search it",
    errno.EPERM: "let the user that the deliverer runs as read, write and search it",
    errno.EROFS: "it is on a read-only file system; mount that writable or name another folder",
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
}


def folder_error(folder: str, error: OSError) -> FolderError:
    """Return what to say of a folder that cannot be opened."""
    remedy = _REMEDIES.get(error.errno or 0, "see to the disk or name another folder")
    return FolderError(f"journal folder {folder!r}: {error.strerror or error}; {remedy}")


def unreadable_error(name: str, error: OSError) -> UnreadableError:
    """Return what to say of a file that could not be read or repaired."""
    remedy = _REMEDIES.get(error.errno or 0, "see to the disk")
    return UnreadableError(f"journal file {name!r}: {error.strerror or error}; {remedy}")


def version_error(name: str, version: int, known: int) -> VersionError:
    """Return what to say of a file that a newer version wrote."""
    return VersionError(
        f"journal file {name!r} has layout version {version}, and this program knows {known}; "
        "start the version that wrote it, or name another folder (nothing was changed)"
    )


def mixed_error(name: str, found: str, expected: str) -> MixedError:
    """Return what to say of a file that belongs to another journal."""
    return MixedError(
        f"journal file {name!r} belongs to journal {found}, the files before it to {expected}; "
        "move the files of one of them elsewhere (nothing was changed)"
    )


def misnamed_error(name: str, right: str) -> MixedError:
    """Return what to say of a file that has the name of another."""
    return MixedError(
        f"journal file {name!r} was written as {right!r}; give it that name back "
        "(nothing was changed)"
    )


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Say of which file an OSError is."""
    try:
        yield
    except OSError as error:
        raise unreadable_error(name, error) from error
