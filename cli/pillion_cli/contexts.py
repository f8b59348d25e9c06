"""Named servers in a file of the user. It has no secret: a token stays in a file of its own."""

import json
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from pillion_cli.exits import CommandError, Exit
from pillion_cli.replacing import replacing

#: Names the context, unless an option or PILLION_SERVER names the server.
CONTEXT_VARIABLE = "PILLION_CONTEXT"
MOST_BYTES = 1 << 20
NAME_RULE = "letters, digits, '.', '_' and '-', at most 63 characters, the first a letter or digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    server: str
    #: Absolute.
    ca_file: str | None = None
    token_file: str | None = None

    def document(self) -> dict[str, str]:
        given = {"server": self.server, "caFile": self.ca_file, "tokenFile": self.token_file}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(slots=True, kw_only=True)
class Contexts:
    """The content of the file."""

    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        contexts = {name: one.document() for name, one in sorted(self.contexts.items())}
        return {"current": self.current, "contexts": contexts}

    def named(self, name: str, *, path: Path | None, by: str) -> Context:
        """``by`` is the option or variable with the name. Raises CommandError."""
        found = self.contexts.get(name)
        if found is not None:
            return found
        known = ", ".join(sorted(self.contexts)[:10]) or "no context"
        raise CommandError(
            f"{by}: there is no context {name[:63]!r}; {path} has {known}", code=Exit.USAGE
        )


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def contexts_path() -> Path | None:
    """Return the place of the file by the XDG Base Directory Specification; None without a home."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification has relative paths ignored.
    folder = configured if os.path.isabs(configured) else os.path.expanduser("~/.config")
    return Path(folder, "pillion", "contexts.json") if os.path.isabs(folder) else None


def read_contexts(path: Path | None) -> Contexts:
    """Return no contexts without a file, or in a home that this user may not enter, as accounts of
    services have one. Raises CommandError."""
    if path is None:
        return Contexts()
    try:
        data = _content(path)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        if not os.access(path.parent, os.X_OK):
            return Contexts()
        raise CommandError(
            f"the contexts cannot be read: {path}: {error.strerror}; make it a file that you may"
            " read, or name the deliverer with --server",
            code=Exit.USAGE,
        ) from error
    try:
        return _read(data)
    except (ValueError, RecursionError) as error:
        raise CommandError(
            f"{path} is no file of contexts: {error}; correct it, or remove it and define them"
            " again with pillion context set",
            code=Exit.USAGE,
        ) from None


def _read(data: bytes) -> Contexts:
    """Raises ValueError, which names the field."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
    document = _members(json.loads(data), "the file", ("current", "contexts"))
    contexts = document.get("contexts", {})
    if not isinstance(contexts, dict):
        raise ValueError("contexts is no object")  # noqa: TRY004
    return Contexts(
        current=_text(document, "current", ""),
        contexts={name: _context(one, f"contexts.{name}") for name, one in contexts.items()},
    )


def _context(given: object, where: str) -> Context:
    members = _members(given, where, ("server", "caFile", "tokenFile"))
    server = _text(members, "server", f"{where}.")
    if server is None:
        raise ValueError(f"{where}.server is missing")
    return Context(
        server=server,
        ca_file=_text(members, "caFile", f"{where}."),
        token_file=_text(members, "tokenFile", f"{where}."),
    )


def _members(given: object, where: str, known: Collection[str]) -> dict[str, object]:
    if not isinstance(given, dict):
        raise ValueError(f"{where} is no object")  # noqa: TRY004
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{where}: unknown field {unknown[0][:40]!r}; use {', '.join(known)}")
    return given


def _text(members: dict[str, object], name: str, where: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}{name} is no text")
    return value


def _content(path: Path) -> bytes:
    # A pipe must not make the command wait.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        return file.read(MOST_BYTES + 1) or b""


def write_contexts(path: Path | None, contexts: Contexts) -> None:
    """Replace the file in one step; only its owner may read it. Raises CommandError."""
    if path is None:
        raise CommandError("there is no home folder: set XDG_CONFIG_HOME to a folder")
    # The file that a link leads to, not the link.
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = json.dumps(contexts.document(), indent=2).encode() + b"\n"
        with replacing(target, content, prefix=".contexts-"):
            pass
    except OSError as error:
        raise CommandError(f"the contexts cannot be written: {path}: {error.strerror}") from error
