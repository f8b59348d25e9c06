"""What a deliverer loads, of which each module costs memory and CPU of its start."""

import subprocess
import sys
from pathlib import Path

from support.bench import resource, write_resources

#: Packages of others that an idle deliverer of one web destination uses, or that they need.
PACKAGES = {
    "aiohttp",
    "aiosignal",
    "attr",
    "frozenlist",
    "httptools",
    "idna",
    "msgspec",
    "multidict",
    "propcache",
    "typing_extensions",
    "yaml",
    "yarl",
}
#: Of our own, and of these packages.
UNNEEDED = {
    "aiohttp.client",
    "aiohttp.connector",
    "ctypes",
    "pillion_cim.mof",
    "pillion_sidecar.auth.tls",
    "pillion_sidecar.auth.tokens",
    "pillion_sidecar.handlers.broker",
    "pillion_sidecar.handlers.cimxml",
    "pillion_sidecar.handlers.file",
    "pillion_sidecar.handlers.kafka",
    "pillion_sidecar.handlers.mqtt",
    "pillion_sidecar.handlers.nats",
    "pillion_sidecar.handlers.plugin",
    "pillion_sidecar.handlers.smtp",
    "pillion_sidecar.handlers.snmp",
    "pillion_sidecar.handlers.standard_webhooks",
    "pillion_sidecar.handlers.syslog",
    "pillion_sidecar.handlers.webhook",
    "pillion_sidecar.journal.disk",
    "pillion_sidecar.telemetry.spans",
}
#: Modules of our own: a new one that only some configurations need is loaded by these.
MOST_MODULES = 257

#: Runs a deliverer until it is ready.
RUN = """
import asyncio, sys
from pathlib import Path
from pillion_cli.main import load
load("sidecar")
from pillion_sidecar.app import Deliverer
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.settings import Settings

async def run():
    place = Address("127.0.0.1", 0)
    deliverer = Deliverer(Settings(resources=Path(sys.argv[1]), intake=place, telemetry=place))
    stop = asyncio.Event()
    running = asyncio.create_task(deliverer.run(stop))
    await deliverer.started.wait()
    print(*sys.modules)
    stop.set()
    await running

asyncio.run(run())
"""
#: The packages that the interpreter itself loads, as ``.pth`` files of an environment ask for.
BEFORE = "import sys; print(*sys.modules)"


def run(program: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[0].split()


def test_an_idle_deliverer_loads_nothing_that_its_configuration_does_not_need(
    tmp_path: Path,
) -> None:
    folder = write_resources(
        tmp_path,
        [
            resource("IndicationService", "default"),
            resource("IndicationFilter", "all", query="SELECT * FROM CIM_AlertIndication"),
            resource(
                "ListenerDestination",
                "web",
                destination="http://127.0.0.1:9/",
                protocol="CloudEvents",
            ),
            resource(
                "IndicationSubscription",
                "web",
                filterRef={"name": "all"},
                destinationRef={"name": "web"},
            ),
        ],
    )
    loaded = set(run(RUN, str(folder))) - set(run(BEFORE))
    ours = {name for name in loaded if name.startswith("pillion_")}
    roots = {name.partition(".")[0] for name in loaded - ours}
    others = {name for name in roots if not name.startswith(("_cython", "cython"))}
    assert loaded & UNNEEDED == set()
    assert others - sys.stdlib_module_names <= PACKAGES
    assert "aiohttp.web" in loaded
    assert len(ours) <= MOST_MODULES, sorted(ours)


DEFERRED = """
import sys
from pillion_cli.aiohttp_server import defer_client
defer_client()
from aiohttp import web
assert "aiohttp.client" not in sys.modules
import aiohttp
print(aiohttp.ClientSession.__module__, aiohttp.web is web, aiohttp.__version__, web.Response)
"""


def test_the_deferred_client_is_loaded_when_it_is_asked_for() -> None:
    module, is_same, version, *_ = run(DEFERRED)
    assert (module, is_same) == ("aiohttp.client", "True")
    assert run("import aiohttp; print(aiohttp.__version__)") == [version]


def test_a_client_that_is_loaded_stays() -> None:
    program = (
        "import aiohttp; from pillion_cli.aiohttp_server import defer_client; defer_client();"
        "import sys; print(sys.modules['aiohttp'] is aiohttp, aiohttp.ClientSession.__name__)"
    )
    assert run(program) == ["True", "ClientSession"]
