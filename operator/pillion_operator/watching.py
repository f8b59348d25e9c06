"""Watches the cluster with kopf and stores what the watches bring, without writing. Handlers of
changes (``on.create``, ``on.update``) would cost a write for each object at each start
(``docs/decisions/0009-kopf-watches-one-queue-reconciles.md``)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client import Configuration

from pillion_operator.cluster.types import (
    CONFIG_MAP,
    NETWORK_POLICY,
    OURS,
    POD,
    POD_DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Object,
    ResourceType,
)
from pillion_operator.names import DELIVERER_LABEL, MANAGED_BY, MANAGED_BY_LABEL, RENDERED
from pillion_sidecar.config.schema import CLASSES_LABEL, CREDENTIALS_LABEL, GROUP

logger = logging.getLogger("pillion.operator")
_KOPF = logging.getLogger("kopf")

_OUR_PLURALS = frozenset(kind.plural for kind in OURS)
_MANAGED = f"{MANAGED_BY_LABEL}={MANAGED_BY}"

#: Seconds after which the API server ends a watch, and kopf restarts it.
SERVER_TIMEOUT = 300

#: Seconds for which kopf keeps an idle object's task; its default is five.
IDLE = 0.5

#: Seconds between attempts to list or watch: the first ones, and all others. Endless: an
#: unreachable or refusing API server is no reason to end the process.
FIRST_RETRIES = (1.0, 1.0, 2.0, 3.0)
LATER_RETRIES = 5.0

#: With the label selector that the API server applies; None: everything.
WATCHED: tuple[tuple[ResourceType, str | None], ...] = (
    *((kind, None) for kind in OURS),
    # Users' own Secrets carry "true", rendered configurations "rendered". No other is ever read.
    (SECRET, f"{CREDENTIALS_LABEL} in (true,{RENDERED})"),
    (POD, DELIVERER_LABEL),
    # Users' own with MOF carry "true", those of gateways "rendered".
    (CONFIG_MAP, f"{CLASSES_LABEL} in (true,{RENDERED})"),
    (STATEFUL_SET, _MANAGED),
    (SERVICE, _MANAGED),
    (SERVICE_ACCOUNT, _MANAGED),
    (POD_DISRUPTION_BUDGET, _MANAGED),
    (NETWORK_POLICY, _MANAGED),
)

#: The kinds of object that an IndicationService owns.
CHILDREN = tuple(kind.kind for kind, _ in WATCHED if kind not in (*OURS, POD))

#: Gets an event's type (None from a listing) and the object.
OnEvent = Callable[[str | None, Object], None]
#: Called with the plural name of a kind when a watch of it begins.
OnWatch = Callable[[str], None]


def registry(
    on_event: OnEvent, on_watch: OnWatch, *, configuration: Callable[[], Configuration]
) -> Any:
    handlers = kopf.OperatorRegistry()

    # kopf passes parts of the object under many keywords; the event has it whole.
    async def observe(event: Mapping[str, Any], **_: Any) -> None:
        on_event(event["type"], event["object"])

    async def login(**_: Any) -> kopf.AiohttpSession:
        return await session(configuration(), on_watch)

    for kind, _selector in WATCHED:
        group, _, version = kind.api_version.rpartition("/")
        kopf.on.event(group, version, kind.plural, registry=handlers)(observe)
    kopf.on.login(registry=handlers)(login)
    return handlers


async def session(configuration: Configuration, on_watch: OnWatch) -> kopf.AiohttpSession:
    """Connect kopf by the official client's configuration. kopf logs in again when its token is
    refused, so a renewed token file is read."""
    authorization = await configuration.get_api_key_with_prefix("BearerToken")
    info = kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
    return kopf.AiohttpSession(
        server=info.server,
        aiohttp_session=aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers={"Authorization": authorization} if authorization else {},
            trace_configs=[_trace(on_watch)],
            middlewares=(_waits_for_definition,),
        ),
    )


async def _waits_for_definition(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Retry a kind of ours whose definition is gone: 404 would end all watches."""
    response = await handler(request)
    if response.status == 404 and request.url.name in _OUR_PLURALS:
        response.close()
        raise aiohttp.ClientConnectionError(f"{request.url.name} are not served")
    return response


def _trace(on_watch: OnWatch) -> aiohttp.TraceConfig:
    """kopf does not report the start of a watch; the session's requests do."""

    async def started(
        _session: aiohttp.ClientSession,
        _context: object,
        request: aiohttp.TraceRequestStartParams,
    ) -> None:
        if request.url.query.get("watch") == "true":
            on_watch(request.url.name)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(started)
    return trace


class Retries:
    """kopf's waits between attempts; each request begins anew."""

    def __iter__(self) -> Iterator[float]:
        return chain(FIRST_RETRIES, repeat(LATER_RETRIES))


class NoComparison(kopf.DiffBaseStorage):
    """kopf compares each object with its earlier state for handlers of changes. There are none, and
    the copies would be a fifth of kopf's work."""

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None
    ) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None: ...


def watch_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # kopf should write nothing; if it does, under our names. Its finalizer must differ from ours:
    # kopf removes it from whatever it does not hold itself.
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = NoComparison()
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = Retries()
    settings.queueing.idle_timeout = IDLE
    settings.watching.server_timeout = SERVER_TIMEOUT
    settings.watching.chunk_size = 500
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.execution.max_workers = 2
    settings.process.ultimate_exiting_timeout = 10
    settings.peering.standalone = True
    for kind, selector in WATCHED:
        if selector is not None:
            group, _, version = kind.api_version.rpartition("/")
            # A single text as key, such as "v1/pods", matches nothing in kopf 1.45.
            key = (group, version, kind.plural) if group else (version, kind.plural)
            settings.watching.label_selectors[key] = selector
    return settings


async def watch(
    on_event: OnEvent,
    on_watch: OnWatch,
    *,
    namespaces: Sequence[str],
    configuration: Callable[[], Configuration],
    stop: asyncio.Event,
) -> None:
    """Watch until ``stop`` is set or the process gets SIGTERM or SIGINT, which kopf handles. Raises
    kopf's error if a watch cannot be kept, and errors of ``on_event``."""
    failures: list[Exception] = []

    def observe(kind: str | None, body: Object) -> None:
        try:
            on_event(kind, body)
        except Exception as error:  # noqa: BLE001 - raised again at the end
            # kopf would log it and continue, and the event's change would be lost.
            failures.append(error)
            stop.set()

    await kopf.operator(
        registry=registry(observe, on_watch, configuration=configuration),
        settings=watch_settings(),
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        standalone=True,
        stop_flag=stop,
    )
    if failures:
        raise failures[0]


class _KopfRecords(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a wrong record must not end a watch
            self.handleError(record)
            return
        if record.levelno == logging.ERROR and "will retry" in text:
            # One failed request. A watch that does not recover fails the probe /livez.
            logger.warning("kopf: %s", text, extra={"event": "watch-retried"})
        else:
            trace = record.exc_info
            logger.log(
                record.levelno, "kopf: %s", text, exc_info=trace, extra={"event": "kopf-told"}
            )


@contextmanager
def renamed_records() -> Iterator[None]:
    """Log kopf's records with the operator's own logger, inside the context."""
    handler, propagated = _KopfRecords(), _KOPF.propagate
    _KOPF.addHandler(handler)
    _KOPF.propagate = False
    try:
        yield
    finally:
        _KOPF.removeHandler(handler)
        _KOPF.propagate = propagated
