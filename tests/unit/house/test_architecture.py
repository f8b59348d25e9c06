"""The import contract: each room imports what the design's table allows it, and nothing else."""

import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from pillion_sidecar.protocols import load_protocols
from support.house import ROOT, SOURCE_ROOTS, modules, packages

#: Room -> what it may import beside itself and the standard library. This is the design's table;
#: a room that is not in it may not exist.
ALLOWED = {
    "pillion_cim": {"lxml"},
    "pillion_sidecar": {
        "pillion_cim",
        "aiohttp",
        # Parsers and the resolver: docs/decisions/ says why each was chosen.
        "aiodns",
        "httptools",
        "msgspec",
        "yaml",
        # A gateway's door, Ed25519 keys of webhooks, and encryption of SNMP; see
        # test_a_sidecar_loads_nothing_that_a_gateways_door_needs.
        "cryptography",
        "jwt",
        # Of extras, each for one protocol; see test_a_sidecar_loads_no_library_of_an_extra.
        "aiokafka",
        "aiosmtplib",
        # Of the extra otel; see test_a_sidecar_loads_no_library_of_an_extra.
        "opentelemetry",
        # Its exporter requires it.
        "requests",
    },
    # OpenTelemetry is of the extra otel; see test_a_task_loads_no_opentelemetry.
    # pillion_rules is for its module rules alone; see test_the_sink_loads_no_rules.
    "pyspark_pillion": {"pyspark", "py4j", "pyarrow", "opentelemetry", "pillion_rules"},
    "pillion_operator": {
        "pillion_cim",
        "pillion_sidecar",
        "aiohttp",
        "cryptography",
        "kopf",
        "kubernetes",
        "prometheus_client",
    },
    "pillion_plugin": set(),
    "pillion_rules": {"pillion_cim", "yaml"},
    "pillion_cli": {
        "pillion_cim",
        "pillion_operator",
        "pillion_plugin",
        "pillion_rules",
        "pillion_sidecar",
        "pyspark_pillion",
        "aiohttp",
        "rich",
    },
}

#: The packages of the deliverer that others know by one module alone, and who connects them.
PORTS = {
    "pillion_sidecar.delivery": "pillion_sidecar.delivery.handler",
    "pillion_sidecar.journal": "pillion_sidecar.journal.ports",
}
CONNECTING = {
    "pillion_sidecar.adopted_journal",
    "pillion_sidecar.adoption_attempts",
    "pillion_sidecar.adoption_runtime",
    "pillion_sidecar.app",
    "pillion_sidecar.copies_runtime",
    "pillion_sidecar.history_runtime",
    "pillion_sidecar.journal_runtime",
    "pillion_sidecar.revisions",
    "pillion_sidecar.stores_runtime",
}
#: They only read what they report on.
READING = ("pillion_sidecar.telemetry.", "pillion_sidecar.diagnosis.")
#: They keep copies of the journal's files as these are.
COPYING = "pillion_sidecar.stores."
LAYOUT = {
    "pillion_sidecar.journal.files",
    "pillion_sidecar.journal.identities",
    "pillion_sidecar.journal.marks",
    "pillion_sidecar.journal.records",
    "pillion_sidecar.journal.repair",
    "pillion_sidecar.journal.scan",
    "pillion_sidecar.journal.segments",
}
#: What these modules, and the vocabulary, may speak of.
VOCABULARY = "pillion_sidecar.indication"
VALUES = {
    VOCABULARY,
    "pillion_sidecar.config.schema.destination",
    "pillion_sidecar.config.schema.response_policy",
    "pillion_sidecar.config.schema.service",
    "pillion_sidecar.trace_context",
    "pillion_cim.model",
    "pillion_cim.schema",
}

#: What the operator, and so a process without an event loop, may take from the deliverer.
CONFIG = "pillion_sidecar.config"
PROTOCOLS = "pillion_sidecar.protocols"
FILEWATCH = "pillion_sidecar.filewatch"
FIELDS = "pillion_sidecar.fields"
TEMPLATES = "pillion_sidecar.templates"


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*packages(), include_external_packages=True, cache_dir=None)


def strangers(graph: grimp.ImportGraph, package: str) -> list[str]:
    """Imports of ``package`` that the table does not allow, as "module -> imported"."""
    allowed = ALLOWED[package] | {package} | sys.stdlib_module_names
    return [
        f"{module} -> {imported}"
        for module in sorted(graph.modules)
        if module.split(".")[0] == package
        for imported in sorted(graph.find_modules_directly_imported_by(module))
        if imported.split(".")[0] not in allowed
    ]


@pytest.mark.parametrize("package", sorted(packages()))
def test_a_room_imports_only_what_the_design_allows_it(
    graph: grimp.ImportGraph, package: str
) -> None:
    assert strangers(graph, package) == []


def test_a_forbidden_import_is_noticed(graph: grimp.ImportGraph) -> None:
    graph.add_module("requests", is_squashed=True)
    graph.add_import(importer="pillion_cim.model", imported="requests")
    try:
        assert strangers(graph, "pillion_cim") == ["pillion_cim.model -> requests"]
    finally:
        graph.remove_module("requests")


def test_every_room_with_code_is_in_the_table_and_under_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(packages()) <= set(ALLOWED)
    contracted = set(project["tool"]["importlinter"]["root_packages"])
    assert contracted == {*packages(), "pillion_testbed"}
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {Path(path).name for path in shipped} == set(packages())


def test_the_import_contract_of_pyproject_is_kept() -> None:
    program = "from importlinter import cli; raise SystemExit(cli.lint_imports(no_cache=True))"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_operator_imports_configuration_connections_tls_and_wire_of_the_sidecar(
    graph: grimp.ImportGraph,
) -> None:
    taken = {
        imported
        for module in graph.modules
        if module.split(".")[0] == "pillion_operator"
        for imported in graph.find_modules_directly_imported_by(module)
        if imported.split(".")[0] == "pillion_sidecar"
    }
    others = {name for name in taken if not f"{name}.".startswith(f"{CONFIG}.")}
    assert others == {
        "pillion_sidecar.auth.tls",
        "pillion_sidecar.connections",
        "pillion_sidecar.console.routes",
        "pillion_sidecar.http_errors",
        FIELDS,
        FILEWATCH,
        "pillion_sidecar.wire.adoptions",
        "pillion_sidecar.wire.journals",
        "pillion_sidecar.wire.queues",
        PROTOCOLS,
    }


@pytest.mark.parametrize(("package", "port"), PORTS.items())
def test_others_know_a_package_by_its_port_alone(
    graph: grimp.ImportGraph, package: str, port: str
) -> None:
    inside = {name for name in graph.modules if f"{name}.".startswith(f"{package}.")}
    known = {
        f"{importer} -> {module}"
        for module in inside - {port}
        for importer in graph.find_modules_that_directly_import(module) - inside - CONNECTING
        if importer.startswith("pillion_sidecar.") and not importer.startswith(READING)
        if module not in LAYOUT or not importer.startswith(COPYING)
    }
    assert known == set()


@pytest.mark.parametrize("module", [*PORTS.values(), VOCABULARY])
def test_a_port_brings_values_alone_with_it(graph: grimp.ImportGraph, module: str) -> None:
    imported = graph.find_modules_directly_imported_by(module)
    assert {name for name in imported if name.startswith("pillion_")} <= VALUES


def imported_along_with(names: list[str]) -> set[str]:
    """What a fresh interpreter has loaded once it has imported ``names``."""
    program = "import sys; [__import__(name) for name in sys.argv[1:]]; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program, *names], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


def test_the_configuration_is_loaded_without_the_deliverer() -> None:
    names = [name for name in modules("pillion_sidecar") if f"{name}.".startswith(f"{CONFIG}.")]
    loaded = imported_along_with(names)
    ours = {name for name in loaded if name.startswith("pillion_sidecar.")}
    known = (f"{CONFIG}.", f"{PROTOCOLS}.", f"{FILEWATCH}.", f"{FIELDS}.", f"{TEMPLATES}.")
    assert {name for name in ours if not f"{name}.".startswith(known)} == set()
    assert loaded.isdisjoint({"aiohttp", "aiodns", "httptools"})


def test_a_sidecar_loads_nothing_that_a_gateways_door_needs() -> None:
    assert imported_along_with(["pillion_sidecar.app"]).isdisjoint({"cryptography", "jwt"})


def test_a_sidecar_loads_no_handler_before_a_destination_needs_it() -> None:
    handlers = {one.handler.partition(":")[0] for one in load_protocols().values()}
    assert imported_along_with(["pillion_sidecar.app"]).isdisjoint(handlers)


def test_a_sidecar_loads_no_library_of_an_extra() -> None:
    libraries = {protocol.library for protocol in load_protocols().values()} - {""}
    loaded = {name.split(".")[0] for name in imported_along_with(["pillion_sidecar.app"])}
    assert loaded.isdisjoint(libraries | {"opentelemetry", "requests"})


def test_the_sink_loads_no_rules() -> None:
    # The archive for --py-files has the sink alone.
    loaded = {name.split(".")[0] for name in imported_along_with(["pyspark_pillion"])}
    assert loaded.isdisjoint({"pillion_rules", "pillion_cim", "yaml", "pandas"})


def test_a_task_loads_no_opentelemetry() -> None:
    loaded = {name.split(".")[0] for name in imported_along_with(["pyspark_pillion"])}
    assert "opentelemetry" not in loaded


def test_the_command_loads_a_room_only_when_its_subcommand_runs() -> None:
    loaded = {name.split(".")[0] for name in imported_along_with(["pillion_cli.main"])}
    assert loaded.isdisjoint(ALLOWED["pillion_cli"])


# What others have written is imported once: it takes longer than all of ours.
IMPORT_EACH = """
import os, sys, traceback

for name in ("aiohttp", "cryptography", "kopf", "kubernetes.aio.dynamic", "pyspark.sql.datasource"):
    __import__(name)
broken = []
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            __import__(name)
        except BaseException:
            print(name, traceback.format_exc(), flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        broken.append(name)
sys.exit(bool(broken))
"""


# Hundreds of processes, beside whatever else the machine does.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_module_can_be_the_first_one_imported() -> None:
    names = [name for package in packages() for name in modules(package)]
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_EACH, *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_no_source_root_and_no_test_folder_is_a_package() -> None:
    found = [root for root in SOURCE_ROOTS if (ROOT / root / "__init__.py").exists()]
    found += [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("__init__.py")]
    assert found == []
