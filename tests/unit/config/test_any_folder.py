"""Whatever lies in the resource folder: a configuration, or the reasons why not."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pillion_cim.schema import Schema, load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.rendered import pack, render_items
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.revisions import Revisions
from pillion_sidecar.settings import Settings
from pillion_sidecar.testing import FakeTime
from support.any_documents import ANYTHING, DOCUMENTS
from support.resources import alert_filter, destination, secret, subscription
from support.strange_files import STRANGE

FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


#: Of YAML.
FRAGMENTS = [
    *("a: ", "- ", "\n", "  ", "{", "}", "[", "]", "&x ", "*x", "!!python/object ", "? ", ": "),
    *("|", ">", "'", '"', "---\n", "...\n", "%YAML 9.9\n", "\t", "\\ud800", "<<: ", "1e999", "# "),
    *("kind: List\n", "items: ", "0x" + "f" * 40, "\ufeff", "\x85", "~", "2026-01-01"),
]


@cache
def schema() -> Schema:
    return load_schema()


def loaded(folder: Path) -> Configuration | ConfigurationError:
    """What a deliverer makes of the folder, its routes and handlers included."""
    revisions = Revisions(
        Settings(resources=folder, addresses=AddressPolicy(allow_loopback=True)),
        schema=schema(),
        current=lambda: None,
        loading=nullcontext,
    )
    try:
        configuration = revisions.load()
    except ConfigurationError as error:
        return error
    revisions.router(configuration).route("CIM_AlertIndication", lambda: None, None)
    time = FakeTime()
    registry = HandlerRegistry(
        clock=time,
        timers=time,
        resolver=Resolver(nameservers=()),
        address_policy=AddressPolicy(),
        schema=schema(),
        service_name=configuration.service.name,
    )
    for one in configuration.destinations.values():
        registry.create_handler(one).close()
    return configuration


def judged(folder: Path) -> None:
    """Load the folder, and see that nothing comes of it but what may."""
    outcome = loaded(folder)
    if isinstance(outcome, ConfigurationError):
        assert outcome.problems
        # So that it can be logged.
        str(outcome).encode()
        unforeseen = [one for one in outcome.problems if one.reason == "InternalError"]
        assert not unforeseen, str(outcome.__cause__)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def bad_url(url: str) -> list[Any]:
    return [destination("d", destination=url)]


@pytest.mark.parametrize("suffix", ["json", "yaml", "rendered"])
@FUZZ
@given(documents=DOCUMENTS)
@example(bad_url("http://[::1::2]/"))
@example(bad_url("http://[1.2.3.4]/"))
@example(bad_url("http://[:]/"))
def test_any_documents_are_a_configuration_or_refused(suffix: str, documents: list[Any]) -> None:
    with folder() as there:
        if suffix == "json":
            for number, document in enumerate(documents):
                (there / f"{number}.json").write_text(json.dumps(document))
        elif suffix == "rendered":
            packed = pack(render_items([json.dumps(one) for one in documents]))
            for name, content in packed.files:
                (there / name).write_bytes(content)
        else:
            text = "\n---\n".join(json.dumps(one, ensure_ascii=False) for one in documents)
            (there / "all.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
        judged(there)


@FUZZ
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(
            st.sampled_from(FRAGMENTS),
            max_size=14,
        ).map(lambda parts: "".join(parts).encode()),
        ANYTHING.map(lambda value: json.dumps(value).encode()[:60]),
    ),
    name=st.sampled_from(["x.yaml", "x.yml", "x.json", "0123456789abcdef.part-01-of-01"]),
)
def test_any_bytes_are_a_configuration_or_refused(content: bytes, name: str) -> None:
    with folder() as there:
        (there / name).write_bytes(content)
        judged(there)


@pytest.mark.parametrize("what", STRANGE)
@pytest.mark.parametrize("name", ["x.yaml", "0123456789abcdef.part-01-of-01"])
def test_a_strange_file_is_refused_or_left_alone(tmp_path: Path, what: str, name: str) -> None:
    STRANGE[what](tmp_path / name)
    judged(tmp_path)
    good = destination(), alert_filter(), subscription(), secret("x")
    (tmp_path / "good.json").write_text("\n---\n".join(json.dumps(one) for one in good))
    judged(tmp_path)
