"""syslog-ng: its http() destination with a reliable buffer on disk, one for each listener."""

from benchmarks.peers import programs
from benchmarks.peers.peer import RETRY, TIMEOUT, Peer, Place
from benchmarks.peers.processes import ProcessGroup, free_port, wait_until_listening
from benchmarks.peers.syslog_lines import SyslogSender as Sender

__all__ = ["Sender", "SyslogNg"]

_HEAD = """\
@version: 3.38
options {{ keep-hostname(yes); stats-freq(0); }};
source s_all {{
  network(ip("127.0.0.1") port({port}) transport("tcp") flags(syslog-protocol));
}};
"""
_LISTENER = """\
destination d_{name} {{
  http(url("{url}") method("POST") headers("Content-Type: application/json") body("$MSG")
    timeout({timeout}) time-reopen({retry}) persist-name("{name}")
    disk-buffer(reliable(yes) disk-buf-size(134217728) mem-buf-size(4194304) dir("buffers")));
}};
filter f_{name} {{ program("{name}" type(string)); }};
log {{ source(s_all); filter(f_{name}); destination(d_{name}); flags(final, flow-control); }};
"""


class SyslogNg(Peer):
    name = "syslog-ng"

    def missing(self) -> str | None:
        return None if programs.find("syslog-ng") else f"no syslog-ng: {programs.FETCH}"

    def configure(self, place: Place) -> None:
        self.processes = ProcessGroup(place.folder)
        self._folder = place.folder
        self._port = free_port()
        self.address = str(self._port)
        (place.folder / "buffers").mkdir()
        listeners = (
            _LISTENER.format(name=name, url=url, timeout=TIMEOUT, retry=RETRY)
            for name, url in place.urls.items()
        )
        text = _HEAD.format(port=self._port) + "".join(listeners)
        (place.folder / "syslog-ng.conf").write_text(text, encoding="utf-8")

    def start(self) -> None:
        program = programs.find("syslog-ng")
        assert program is not None
        modules = programs.root_of(program).glob("usr/lib/syslog-ng/*/libhttp.so")
        files = ("--cfgfile=syslog-ng.conf", "--persist-file=persist", "--pidfile=pid")
        own = (*files, "--control=control", f"--module-path={next(modules).parent}")
        command = [str(program), "--foreground", "--no-caps", *own]
        self.processes.start(command, programs.environment_of(program))
        wait_until_listening(self._port, self.processes)
