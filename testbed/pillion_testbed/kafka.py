"""Apache Kafka for tests: its jars, from Maven Central, and one node (KRaft)."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pillion_testbed.binaries import cache_folder
from pillion_testbed.processes import Running, Spawner

VERSION = "4.1.1"
#: A node needs little, and tests start it often.
JVM = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.pillion</groupId>
  <artifactId>kafka</artifactId>
  <version>{VERSION}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def jars(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of Kafka's jars, which may be missing."""
    return cache_folder(environment).parent / f"kafka-{VERSION}"


def fetch(target: Path) -> None:
    """Fetch the jars. Raises CalledProcessError and FileNotFoundError if Maven cannot."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(_POM, encoding="utf-8")
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
        command = ("mvn", "-q", "-B", *goal, f"-DoutputDirectory={target}")
        subprocess.run(command, cwd=folder, check=True)


def open_node(port: int, controller: int) -> dict[str, str]:
    """Return the properties of a node on loopback that lets everybody in."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"OPEN://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"OPEN://localhost:{port}",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        "controller.listener.names": "CONTROLLER",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


class Node:
    """One node, broker and controller. Its data stay when it ends."""

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        """``folder``: for its data and its log."""
        self._folder = folder
        self._file = folder / "server.properties"
        lines = {**properties, "log.dirs": str(folder / "data")}
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        self._file.write_text(text, encoding="utf-8")
        self._spawner = Spawner()

    def format(self, users: Mapping[str, str]) -> None:
        """Prepare the data; ``users``: names and passwords, for SCRAM."""
        scram = [
            f"--add-scram={mechanism}=[name={user},password={password}]"
            for user, password in users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        options = ("-t", _CLUSTER, "-c", str(self._file), *scram)
        made = subprocess.run(
            [*_java("kafka.tools.StorageTool"), "format", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"Kafka's data cannot be prepared: {made.stdout}{made.stderr}")

    def start(self) -> Running:
        return self._spawner.start(
            "Kafka", [*_java("kafka.Kafka"), str(self._file)], log=self._folder / "kafka.log"
        )

    def close(self) -> None:
        self._spawner.close()


def _java(name: str) -> Sequence[str]:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    return (java, *JVM, "-cp", f"{jars()}/*", name)
