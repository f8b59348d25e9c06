"""The receivers of the demo: one for each protocol. Each can be killed, and comes back."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from pathlib import Path
from typing import ClassVar

import nats
import yaml
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError
from waiting import until

from pillion_testbed import kafka
from pillion_testbed.binaries import find_binaries
from pillion_testbed.processes import Running, Spawner
from pillion_testbed.receivers import Receivers

HERE = Path(__file__).parent
RESOURCES = HERE / "resources"
#: Of an indication. What the receivers have written down is searched for it.
IDENTIFIER = "demo-{:04}"
_NUMBER = re.compile(r"demo-(\d{4})")
_BUILT = Receivers(find_binaries(os.environ))
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def numbers(lines: Iterable[str]) -> list[int]:
    """Return the number that each line has, in their order. A line may have it several times."""
    return [int(found[1]) for found in map(_NUMBER.search, lines) if found]


def read_lines(file: Path) -> list[str]:
    """Return the whole lines of a file, which may be missing."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    return text.rpartition("\n")[0].splitlines()


@dataclass
class Receiver:
    """A program that receives, and its record of what it has received."""

    #: For its files, which outlive it.
    folder: Path
    spawner: Spawner
    port: int = field(default_factory=free_port)
    running: Running | None = None

    protocol: ClassVar[str]
    title: ClassVar[str]
    #: A delivery is a success before the program has read it, so it is killed when it has read all.
    may_lose_unread: ClassVar[bool] = False
    #: What is done to it.
    harm: ClassVar[str] = "killed"
    #: Attempts fail meanwhile.
    fails: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Of its destination, of the queue and of the resource file."""
        return self.protocol.lower()

    @property
    def record(self) -> Path:
        return self.folder / "record"

    def missing(self) -> str | None:
        """How to get the program; None if it is here."""
        return None

    def resource(self) -> str:
        """Its resource file, with its port."""
        text = (RESOURCES / f"{self.name}.yaml").read_text(encoding="utf-8")
        return re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{self.port}", text)

    def command(self) -> Sequence[str]:
        """Of the program; writes its configuration."""
        raise NotImplementedError

    def start(self) -> None:
        self.running = self.spawner.start(
            self.title, self.command(), log=self.folder / "log", environment=self.environment()
        )

    def environment(self) -> dict[str, str]:
        return {}

    def prepare(self) -> None:
        """Do what is needed once, when it runs for the first time."""

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self.running is not None
        self.running.stop()

    def wait(self) -> None:
        """Wait until it listens. Raises DemoFailed, ProcessFailed."""
        until(f"{self.title} ({self.protocol}) to listen", self._is_up)

    def _is_up(self) -> bool:
        self.check()
        return self.listens()

    def check(self) -> None:
        """Raises ProcessFailed if it has ended by itself."""
        if self.running is not None and self.running.exit_code() is not None:
            raise self.running.failed("ended")

    def listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def arrived(self) -> list[int]:
        """Return the numbers that it has, in the order of their arrival; repeats too."""
        return numbers(read_lines(self.record))

    def lacking(self, count: int) -> list[int]:
        """Return which numbers from 1 to ``count`` it does not have."""
        return sorted(set(range(1, count + 1)) - set(self.arrived()))

    def close(self) -> None:
        if self.running is not None:
            self.running.stop(grace=10)


class PillionListen(Receiver):
    title = "pillion listen"

    @property
    def record(self) -> Path:
        return self.folder / "log"

    def command(self) -> Sequence[str]:
        options = ("--port", str(self.port), "--output", "json")
        return (sys.executable, "-m", "pillion_cli.main", "listen", *options)


class CIMXML(PillionListen):
    protocol = "CIM-XML"


class CloudEvents(PillionListen):
    protocol = "CloudEvents"


class Hook(Receiver):
    protocol = "Webhook"
    title = "hooks.py (a template)"

    def command(self) -> Sequence[str]:
        return (sys.executable, str(HERE / "hooks.py"), str(self.port), str(self.record))


class SignedHook(Hook):
    protocol = "StandardWebhooks"
    title = "hooks.py (verifies)"

    def command(self) -> Sequence[str]:
        documents = yaml.safe_load_all(self.resource())
        (secret,) = (one["stringData"]["secret"] for one in documents if one["kind"] == "Secret")
        return (*super().command(), secret)


class Rsyslog(Receiver):
    protocol = "Syslog"
    title = "rsyslogd"
    may_lose_unread = True

    def missing(self) -> str | None:
        return None if program("rsyslogd") else "apt-get install rsyslog"

    def command(self) -> Sequence[str]:
        file = self.folder / "rsyslog.conf"
        file.write_text(
            f'global(workDirectory="{self.folder}")\n'
            'module(load="imtcp")\n'
            'template(name="line" type="string" string="%rawmsg%\\n")\n'
            'ruleset(name="in") {\n'
            f'  action(type="omfile" file="{self.record}" template="line"\n'
            '         asyncWriting="off" flushOnTXEnd="on")\n'
            "}\n"
            f'input(type="imtcp" address="127.0.0.1" port="{self.port}" ruleset="in")\n',
            encoding="utf-8",
        )
        return (str(program("rsyslogd")), "-n", "-f", str(file), "-i", "NONE")


@dataclass
class SNMPTrapd(Receiver):
    protocol = "SNMP"
    title = "snmptrapd (v3 informs)"
    port: int = field(default_factory=lambda: free_port(socket.SOCK_DGRAM))

    def missing(self) -> str | None:
        return None if program("snmptrapd") else "apt-get install snmptrapd"

    def command(self) -> Sequence[str]:
        file = self.folder / "snmptrapd.conf"
        file.write_text(
            'createUser pillion SHA-256 "change-me-1" AES "change-me-2"\nauthUser log pillion\n',
            encoding="utf-8",
        )
        options = ("-f", "-C", "-c", str(file), "-A", "-Lf", str(self.record))
        form = ("-n", "-m", "", "-F", "%v\n")
        return (str(program("snmptrapd")), *options, *form, f"udp:127.0.0.1:{self.port}")

    def environment(self) -> dict[str, str]:
        """Where it stores its engine's boots."""
        return {"SNMP_PERSISTENT_DIR": str(self.folder), "SNMPCONFPATH": str(self.folder)}

    def listens(self) -> bool:
        lines = Path("/proc/net/udp").read_text(encoding="ascii").splitlines()
        return f"0100007F:{self.port:04X}" in (line.split()[1] for line in lines)


class NATSServer(Receiver):
    protocol = "NATS"
    title = "nats-server (JetStream)"

    def missing(self) -> str | None:
        return None if _BUILT.find("nats-server") else "make receivers builds it"

    def command(self) -> Sequence[str]:
        file = self.folder / "server.conf"
        store = f'store_dir: "{self.folder}/js", sync_interval: always'
        file.write_text(f"jetstream {{{store}}}\n", encoding="utf-8")
        address = ("-a", "127.0.0.1", "-p", str(self.port))
        return (str(_BUILT.find("nats-server")), *address, "-c", str(file))

    def prepare(self) -> None:
        async def add_stream() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{self.port}")
            await client.jetstream().add_stream(name="alerts", subjects=["alerts.>"])
            await client.close()

        asyncio.run(add_stream())

    def arrived(self) -> list[int]:
        async def read() -> list[bytes]:
            client = await nats.connect(f"nats://127.0.0.1:{self.port}")
            stream = client.jetstream()
            count = (await stream.stream_info("alerts")).state.messages
            found = [await stream.get_msg("alerts", seq=number + 1) for number in range(count)]
            await client.close()
            return [one.data or b"" for one in found]

        return numbers(data.decode() for data in asyncio.run(read()))


@dataclass
class Mosquitto(Receiver):
    protocol = "MQTT"
    title = "mosquitto, mosquitto_sub"
    subscriber: Running | None = None

    def missing(self) -> str | None:
        here = program("mosquitto") and program("mosquitto_sub")
        return None if here else "apt-get install mosquitto mosquitto-clients"

    def command(self) -> Sequence[str]:
        """A broker that stores the subscriber's session at each change."""
        file = self.folder / "mosquitto.conf"
        file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\n"
            f"persistence true\npersistence_location {self.folder}/\n"
            "autosave_interval 1\nautosave_on_changes true\nmax_inflight_messages 0\n",
            encoding="utf-8",
        )
        return (str(program("mosquitto")), "-c", str(file))

    def prepare(self) -> None:
        """Subscribe: it connects again by itself when the broker is back."""
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-V", "mqttv311")
        session = ("-i", "reader", "-c", "-q", "1", "-t", "alerts/#", "-d", "-F", "%p")
        command = ("stdbuf", "-oL", str(program("mosquitto_sub")), *address, *session)
        self.subscriber = self.spawner.start("mosquitto_sub", command, log=self.record)
        until(
            "mosquitto_sub to subscribe",
            lambda: any(line.startswith("Subscribed") for line in read_lines(self.record)),
        )

    def close(self) -> None:
        if self.subscriber is not None:
            self.subscriber.stop(grace=10)
        super().close()


@dataclass
class Kafka(Receiver):
    protocol = "Kafka"
    title = f"Apache Kafka {kafka.VERSION}"
    node: kafka.Node | None = None

    def missing(self) -> str | None:
        if program("java") is None:
            return "a JDK 17 is missing"
        return None if kafka.jars().exists() else "make receivers fetches it"

    def start(self) -> None:
        if self.node is None:
            self.node = kafka.Node(self.folder, kafka.open_node(self.port, free_port()))
            self.node.format({})
        self.running = self.node.start()

    def prepare(self) -> None:
        async def create() -> bool:
            admin = AIOKafkaAdminClient(bootstrap_servers=f"localhost:{self.port}")
            try:
                await admin.start()
                await admin.create_topics([NewTopic("cim-alerts", 1, 1)])
            except TopicAlreadyExistsError:
                return True
            except KafkaError:
                return False
            finally:
                await admin.close()
            return True

        until("Kafka to create a topic", lambda: asyncio.run(create()))

    def arrived(self) -> list[int]:
        async def read() -> list[bytes]:
            consumer = AIOKafkaConsumer(bootstrap_servers=f"localhost:{self.port}")
            await consumer.start()
            try:
                partition = TopicPartition("cim-alerts", 0)
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                end = (await consumer.end_offsets([partition]))[partition]
                found: list[bytes] = []
                while await consumer.position(partition) < end:
                    found.append((await consumer.getone()).value)
            finally:
                await consumer.stop()
            return found

        return numbers(value.decode() for value in asyncio.run(read()))

    def close(self) -> None:
        super().close()
        if self.node is not None:
            self.node.close()


class SMTPSink(Receiver):
    protocol = "SMTP"
    title = "smtp-sink (Postfix)"

    def missing(self) -> str | None:
        return None if program("smtp-sink") else "apt-get install postfix"

    def command(self) -> Sequence[str]:
        user = ("-u", "root") if os.getuid() == 0 else ()
        where = ("-D", str(self.record), f"127.0.0.1:{self.port}", "16")
        return (str(program("smtp-sink")), *user, *where)

    def arrived(self) -> list[int]:
        """Read the attached JSON of each mail: one mail may have several indications."""
        text = self.record.read_bytes() if self.record.exists() else b""
        # The sink puts this line before each mail.
        mails = re.split(rb"^(?=X-Client-Addr: )", text, flags=re.MULTILINE)
        found = [one for mail in mails for one in self._indications(mail)]
        return numbers(map(json.dumps, found))

    @staticmethod
    def _indications(mail: bytes) -> list[object]:
        """Return those of a mail: none if the sink was killed while it wrote it."""
        message = message_from_bytes(mail, policy=policy.SMTP)
        for part in message.walk():
            if part.get_filename() == "indications.json":
                try:
                    found: list[object] = json.loads(part.get_content())
                except ValueError:
                    return []
                return found
        return []


class File(Receiver):
    """The deliverer itself writes the file, so its folder goes away and comes back."""

    protocol = "File"
    title = "delivery folder"
    harm = "moved away"

    @property
    def delivery_folder(self) -> Path:
        return self.folder / "out"

    @property
    def record(self) -> Path:
        return self.delivery_folder / "alerts.ndjson"

    def start(self) -> None:
        away = self.folder / "away"
        if away.exists():
            away.rename(self.delivery_folder)
        else:
            self.delivery_folder.mkdir()

    def listens(self) -> bool:
        return self.delivery_folder.exists()

    def kill(self) -> None:
        self.delivery_folder.rename(self.folder / "away")


@dataclass
class PlugIn(Receiver):
    """The deliverer starts it, and starts it again."""

    protocol = "Plugin"
    title = "append.sh"
    fails = False
    deliverer: Running | None = None

    def option(self) -> str:
        """What the deliverer has to be told."""
        script = HERE.parent / "plugins" / "append.sh"
        return f"append={sys.executable} -m pillion_cli.main plugin exec -- {script}"

    def environment(self) -> dict[str, str]:
        """Of the deliverer."""
        return {"PILLION_PLUGIN_FILE": str(self.record)}

    def start(self) -> None:
        pass

    def listens(self) -> bool:
        return True

    def kill(self) -> None:
        until("the deliverer to start the plug-in", lambda: bool(self._processes()))
        for one in self._processes():
            os.kill(one, signal.SIGKILL)

    def _processes(self) -> list[int]:
        """The children of the deliverer, which has no others."""
        assert self.deliverer is not None
        threads = Path(f"/proc/{self.deliverer.pid}/task").iterdir()
        return [int(one) for file in threads for one in (file / "children").read_text().split()]


RECEIVERS: Sequence[type[Receiver]] = (
    CIMXML,
    CloudEvents,
    SignedHook,
    Hook,
    Rsyslog,
    SNMPTrapd,
    NATSServer,
    Mosquitto,
    Kafka,
    SMTPSink,
    File,
    PlugIn,
)
