"""House rules that hold for every test: the event loop is never blocked, no task and no socket is
left behind, and time is moved by hand.

Sockets are counted around everything else, the event loop's own included, so a test that leaks one
fails at its own teardown and not three files later.
"""

import asyncio
import gc
import importlib.util
import os
import sys
import types
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import hypothesis
import pytest
import pytest_asyncio
from blockbuster import BlockBuster, BlockBusterFunction

from pillion_sidecar.testing import FakeTime

#: Rooms that run on an event loop, and so may never block it.
LOOP_ROOMS = ("pillion_cim", "pillion_sidecar", "pillion_operator", "pillion_cli")

#: Where blocking is right all the same: (end of the file's path, functions, why).
MAY_BLOCK: tuple[tuple[str, frozenset[str], str], ...] = (
    (
        "pillion_sidecar/app.py",
        frozenset({"__init__"}),
        "a deliverer that is being made reads schema and version; it serves nobody yet",
    ),
    (
        "pillion_sidecar/journal_runtime.py",
        frozenset({"close"}),
        "the last thing that a deliverer does is to wait for its disk; it serves nobody any more",
    ),
    (
        "pillion_sidecar/journal/workers.py",
        frozenset({"drain", "close"}),
        "the same, of the threads of its journal",
    ),
)

#: Seconds for a test that starts a JVM, unless it says otherwise itself.
SPARK_TIMEOUT = 300

#: Turns of the event loop in which tasks that were cancelled or are about to end may do so.
SETTLING_TURNS = 20


def pytest_configure() -> None:
    # Spark starts its workers with the first python3 on PATH unless it is told otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # No deadline and no limit for the making of examples: both assert a duration. Where others
    # wait for the result, the same examples each time; on one's own machine, new ones.
    hypothesis.settings.register_profile(
        "house",
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--but-green",
        action="store_true",
        help="leave out what `make rows` has just found green on this very tree",
    )


def _leave_out_green(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Property tests are run all the same: they try other examples."""
    # Not on top: tests of this file copy it to where there are no tools.
    import green

    tests = green.known(config.rootpath)
    left_out = [
        item
        for item in items
        if green.covers(tests, item.nodeid)
        and not getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--but-green"):
        _leave_out_green(config, items)
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what passing tests have to tell (``record_property("told", …)``), quietly or not, and
    the sums of what they count (``record_property(WHAT, NUMBER)``)."""
    sums: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "told":
                terminalreporter.write_line(str(value))
            elif isinstance(value, int):
                sums[name] += value
    for name, total in sums.items():
        terminalreporter.write_line(f"{total:,} {name} in all")


@pytest.fixture
def fake_time() -> FakeTime:
    """A clock and its timers, moved by hand."""
    return FakeTime()


def _located(name: str) -> types.ModuleType:
    """Stand in for a package that BlockBuster only needs the path of: nothing is imported."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    module = types.ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations or ())
    return module


@pytest.fixture(scope="session")
def blockers() -> list[BlockBusterFunction]:
    """The calls that block: from our rooms all that BlockBuster knows, from anywhere a sleep."""
    functions = BlockBuster(scanned_modules=[_located(name) for name in LOOP_ROOMS]).functions
    functions["time.sleep"] = BlockBusterFunction(None, "time.sleep")
    for file, names, _why in MAY_BLOCK:
        for function in functions.values():
            function.can_block_in(file, names)
    return list(functions.values())


@pytest.fixture(autouse=True)
def _never_block_the_loop(
    request: pytest.FixtureRequest, blockers: list[BlockBusterFunction]
) -> Iterator[None]:
    if not pytest_asyncio.is_async_test(request.node):
        yield
        return
    for function in blockers:
        function.activate()
    yield
    for function in blockers:
        function.deactivate()


def _open_sockets() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the descriptor of this very listing
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


@pytest.fixture(autouse=True)
def _no_leaked_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("spark"):
        yield  # py4j keeps a pool of connections that grows in any test
        return
    before = _open_sockets()
    yield
    if _open_sockets() - before:
        # One that only waits for the collector raises ResourceWarning here, which is an error too.
        gc.collect()
    left = _open_sockets() - before
    assert not left, f"{len(left)} socket(s) left open"


@pytest.fixture(autouse=True)
def _no_leaked_tasks(request: pytest.FixtureRequest, _no_leaked_sockets: None) -> None:
    # Asked for by name, since an asynchronous autouse fixture would give every test a loop.
    if pytest_asyncio.is_async_test(request.node):
        request.getfixturevalue("_tasks_end_with_the_test")


@pytest_asyncio.fixture
async def _tasks_end_with_the_test() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    leaked: set[asyncio.Task[object]] = set()
    for _turn in range(SETTLING_TURNS):
        leaked = asyncio.all_tasks() - before - {asyncio.current_task()}
        if not leaked:
            return
        await asyncio.sleep(0)
    names = sorted(repr(task.get_coro()) for task in leaked)
    for task in leaked:
        task.cancel()
    await asyncio.gather(*leaked, return_exceptions=True)
    pytest.fail(f"{len(names)} task(s) left running: {', '.join(names)}")
