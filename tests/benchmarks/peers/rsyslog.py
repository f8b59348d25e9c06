"""rsyslog: each listener has an action with a queue of its own, which the disk assists.

Debian 12 has no omhttp, so that omprog gives each event to a program (``workers/forwarder.py``),
and waits for it to confirm the event.
"""

import sys

from benchmarks.peers import programs
from benchmarks.peers.peer import RETRY, TIMEOUT, WORKERS, Peer, Place
from benchmarks.peers.processes import ProcessGroup, free_port, wait_until_listening
from benchmarks.peers.syslog_lines import SyslogSender as Sender

__all__ = ["Rsyslog", "Sender"]

_HEAD = """\
global(workDirectory="{folder}/spool")
module(load="imtcp")
module(load="omprog")
template(name="body" type="string" string="%msg%\\n")
input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="all")
ruleset(name="all") {{
"""
_LISTENER = """\
  if $programname == "{name}" then {{
    action(type="omprog" template="body" binary="{python} {forwarder} {url} {timeout}"
      confirmMessages="on" confirmTimeout="20000" action.resumeRetryCount="-1"
      action.resumeInterval="{retry}" queue.type="LinkedList" queue.filename="{name}"
      queue.size="50000" queue.saveOnShutdown="on")
    stop
  }}
"""


class Rsyslog(Peer):
    name = "rsyslog"

    def missing(self) -> str | None:
        return None if programs.find("rsyslogd") else f"no rsyslog: {programs.FETCH}"

    def configure(self, place: Place) -> None:
        self.processes = ProcessGroup(place.folder)
        self._port = free_port()
        self.address = str(self._port)
        (place.folder / "spool").mkdir()
        own = {"python": sys.executable, "forwarder": WORKERS / "forwarder.py"}
        listeners = (
            _LISTENER.format(name=name, url=url, timeout=TIMEOUT, retry=RETRY, **own)
            for name, url in place.urls.items()
        )
        head = _HEAD.format(folder=place.folder, port=self._port)
        text = head + "".join(listeners) + "}\n"
        (place.folder / "rsyslog.conf").write_text(text, encoding="utf-8")

    def start(self) -> None:
        program = programs.find("rsyslogd")
        assert program is not None
        modules = next(programs.root_of(program).glob("usr/lib/*-linux-gnu/rsyslog"))
        files = ["-f", "rsyslog.conf", "-i", "pid", "-M", str(modules)]
        # -n: in the foreground.
        self.processes.start([str(program), "-n", *files], programs.environment_of(program))
        wait_until_listening(self._port, self.processes)
