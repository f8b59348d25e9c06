"""A plug-in on standard input and output, or on a Unix socket."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from socket import AF_UNIX, SHUT_RD, SHUT_RDWR, SOCK_STREAM
from socket import socket as Socket
from threading import Condition, Event, Thread
from typing import BinaryIO

from pillion_plugin.clock import Clock, SystemClock
from pillion_plugin.link import Deliver, Link, Plugin
from pillion_plugin.log import say
from pillion_plugin.messages import MESSAGE_LIMIT

#: Links of one socket: as many as a deliverer has at most. Each has in_flight + 2 threads.
MOST_LINKS = 64
#: Errors of accept() that pass: a shortage, or a deliverer that has gone already.
_PASSING = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED))
#: Seconds from such an error to the next accept().
PAUSE_SECONDS = 1.0
#: The path of the socket, if the program gives none.
SOCKET_VARIABLE = "PILLION_PLUGIN_SOCKET"


def run(
    deliver: Deliver,
    *,
    name: str,
    version: str = "",
    in_flight: int = 1,
    socket: str | os.PathLike[str] | None = None,
) -> None:
    """Serve a deliverer on standard input and output until it ends the link; or, with ``socket``
    or $PILLION_PLUGIN_SOCKET, as the operator sets it in the pods of gateways, any number of
    deliverers and destinations on a Unix socket, until the process is ended.

    ``deliver`` is called in a thread: up to ``in_flight`` (1 to 5) at once on each link. With
    standard input and output, all that the program prints goes to standard error, since standard
    output belongs to the protocol.

    Raises ValueError. A socket that cannot be made ends the program with one line and exit code 1.
    """
    try:
        serve(deliver, name=name, version=version, in_flight=in_flight, socket=socket)
    except SocketError as failure:
        raise SystemExit(f"{name}: {failure.strerror}") from None


def serve(
    deliver: Deliver,
    *,
    name: str,
    version: str,
    in_flight: int,
    socket: str | os.PathLike[str] | None,
    sockets: list[Path] | None = None,
) -> None:
    """As :func:`run`. ``sockets`` gets the path of the socket that was made, for who ends the
    process by other means. Raises ValueError and SocketError."""
    plugin = Plugin(deliver=deliver, name=name, version=version, in_flight=in_flight)
    path = socket or os.environ.get(SOCKET_VARIABLE)
    if not path:
        commands, answers = _own_streams()
        with commands, answers:
            link = Link(plugin, write=partial(_write_all, answers), clock=SystemClock())
            link.serve(read_lines(commands))
    else:
        with SocketServer(plugin, Path(path), clock=SystemClock(), is_shared=not socket) as server:
            if sockets is not None:
                sockets.append(Path(path))
            server.serve()


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines until the end of input, a hang-up, or a line that is too long."""
    while True:
        try:
            line = stream.readline(MESSAGE_LIMIT + 1)
        except OSError as failure:
            say(f"the deliverer has gone: {failure}")
            return
        if len(line) > MESSAGE_LIMIT and not line.endswith(b"\n"):
            say(f"the link ends: a line has more than {MESSAGE_LIMIT} bytes")
            return
        if not line.endswith(b"\n"):
            return  # the end of input, or half a line before it
        if line.strip():
            yield line


def _write_all(stream: FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[stream.write(left) :]


def _own_streams() -> tuple[BinaryIO, FileIO]:
    """Take standard input and output for the protocol. Child processes, and what is printed by any
    library, get /dev/null and standard error in their place."""
    commands, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # What was printed before, and has not been written yet.
    print(end="", flush=True)
    sys.stdout = sys.stderr
    return open(commands, "rb"), FileIO(answers, "w")


class SocketError(OSError):
    """A socket cannot be made."""


class SocketServer:
    """Serves links on a Unix socket, each in a thread of its own. Raises SocketError.

    ``is_shared``: any user may connect. The operator's folder is that of one pod, where deliverer
    and plug-in may run as different users.
    """

    def __init__(
        self, plugin: Plugin, path: Path, *, clock: Clock, is_shared: bool = False
    ) -> None:
        self._plugin = plugin
        self._path = path
        self._clock = clock
        # Guards all below but the socket itself.
        self._changed = Condition()
        #: Each with whether it has ended; its threads may not have.
        self._links: dict[Socket, Event] = {}
        self._is_closed = False
        self._listening = _listen(path, is_shared=is_shared)

    def __enter__(self) -> "SocketServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve(self) -> None:
        """Accept links until :meth:`close`. Raises OSError if the socket is of no further use."""
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError as failure:
                if self._is_closed:
                    return
                if failure.errno not in _PASSING:
                    raise
                say(f"no link can be accepted for now: {failure}")
                self._pause()
            else:
                self._begin(connection)

    def _pause(self) -> None:
        """Let a shortage pass; :meth:`close` ends the wait."""
        with self._changed:
            if not self._is_closed:
                self._clock.wait(self._changed, PAUSE_SECONDS)

    def _begin(self, connection: Socket) -> None:
        refusal = self._start_link(connection)
        if refusal is not None:
            say(f"a link is refused: {refusal}")
            connection.close()

    def _start_link(self, connection: Socket) -> str | None:
        """Return why it cannot be served, or None."""
        with self._changed:
            if self._is_closed:
                return "the plug-in is ending"
            if len(self._links) >= MOST_LINKS:
                return f"there are {MOST_LINKS}"
            self._links[connection] = Event()
            try:
                Thread(target=self._serve_link, args=(connection,), daemon=True).start()
            except RuntimeError as failure:  # the limit of threads
                del self._links[connection]
                return str(failure)
        return None

    def _serve_link(self, connection: Socket) -> None:
        link = Link(self._plugin, write=connection.sendall, clock=self._clock)
        try:
            with connection, connection.makefile("rb") as commands:
                link.serve(read_lines(commands))
        except RuntimeError as failure:  # the limit of threads
            say(f"a link ends: {failure}")
        finally:
            self._links[connection].set()
            # Its place is taken for as long as its threads are there: their number is bounded.
            link.join()
            with self._changed:
                del self._links[connection]

    def close(self) -> None:
        """End all links, and remove the socket. What has come is answered first."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            links = dict(self._links)
        # accept() in another thread returns by this, not by close().
        _shut(self._listening, SHUT_RDWR)
        self._listening.close()
        self._path.unlink(missing_ok=True)
        for connection in links:
            _shut(connection, SHUT_RD)
        for ended in links.values():
            ended.wait()


def _listen(path: Path, *, is_shared: bool) -> Socket:
    listening = Socket(AF_UNIX, SOCK_STREAM)
    try:
        _remove_stale(path)
        listening.bind(os.fspath(path))
        if is_shared:
            path.chmod(0o666)
        listening.listen()
    except OSError as failure:
        listening.close()
        text = failure.strerror or str(failure)
        raise SocketError(failure.errno, f"cannot listen on the socket {path}: {text}") from failure
    return listening


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that has ended. Raises OSError if somebody listens there, or
    if it is something else."""
    if not path.exists():
        return
    if not path.is_socket():
        raise OSError(errno.EEXIST, "there is a file of this name that is no socket")
    with Socket(AF_UNIX, SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, "another process listens there")


def _shut(connection: Socket, how: int) -> None:
    with suppress(OSError):  # it has gone already
        connection.shutdown(how)
