"""Names, defaults and limits that the manual states are those of the source."""

import re
from array import array

import pytest
import yaml

from pillion_cim.filters.parser import MAX_DEPTH as FILTER_DEPTH
from pillion_cim.filters.syntax import Function
from pillion_cim.jsonform import MAX_DEPTH as INSTANCE_DEPTH
from pillion_cim.schema import load_schema
from pillion_sidecar.app import TELEMETRY_HEAD_BYTES
from pillion_sidecar.auth.acceptor import HANDSHAKE_SECONDS, HEAD_BYTES, PROOF_SECONDS, Limits
from pillion_sidecar.config.durability import (
    QUEUE_SIZE_IN_MEMORY,
    QUEUE_SIZE_ON_DISK,
    RETRY_ON_DISK,
    duplicate_window,
    effective_lifetime,
)
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import ListenerDestination, RetryPolicy
from pillion_sidecar.config.schema.service import Durability, IndicationService
from pillion_sidecar.config.schema.subscription import IndicationSubscription
from pillion_sidecar.delivery.backlog import FRONT_ENTRIES
from pillion_sidecar.delivery.compact_entries import CompactEntries, CompactEntry
from pillion_sidecar.delivery.entries import REMEMBERED_EVENTS
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.delivery.queue import GROUP_SEARCH
from pillion_sidecar.descriptors import (
    INTAKE_CONNECTIONS,
    KEPT_BACK,
    MOST_DESCRIPTORS,
    SMALL_CONNECTIONS,
)
from pillion_sidecar.handlers.http.answers import BODY_LIMIT
from pillion_sidecar.handlers.transport.exchange import HEAD_LIMIT
from pillion_sidecar.handlers.transport.sender import IDLE_SECONDS
from pillion_sidecar.history.faults import MOST_ASKED
from pillion_sidecar.http_server import MAXIMUM_HEADERS
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.intake.answers import CALLBACK_DISCARDS
from pillion_sidecar.intake.bodies import FORMATS
from pillion_sidecar.intake.decoding import ENVELOPE, MEMBERSHIP
from pillion_sidecar.intake.limits import (
    GRACE_SECONDS,
    MOST_BODY_BYTES,
    MOST_READING,
    MOST_WAITING,
    IntakeLimits,
)
from pillion_sidecar.intake.pacing import MOST_CHARACTERS, MOST_PUBLISHERS
from pillion_sidecar.intake.parameters import DEFAULT_FAULTS, DEFAULT_TIMEOUT, MAXIMUM_TEXT
from pillion_sidecar.intake.parameters import MAXIMUM_FAULTS as MOST_FAULTS_TOLD
from pillion_sidecar.intake.server import CIM_XML_PATHS
from pillion_sidecar.intake.submission import MAXIMUM_REFUSED
from pillion_sidecar.journal.disk import SETTLE_SECONDS
from pillion_sidecar.journal.limits import (
    IDENTITY_BYTES,
    MAXIMUM_WAITING,
    MIB,
    OVER,
    JournalSettings,
)
from pillion_sidecar.journal_runtime import DEFAULT_BYTES, VOLUME_SHARE
from pillion_sidecar.memory import (
    BASE_BYTES,
    PLAIN_CONNECTION_BYTES,
    REQUEST_BYTES,
    TLS_CONNECTION_BYTES,
    WAITING_BYTES,
    tls_connections,
)
from pillion_sidecar.protocols import cim_xml
from pillion_sidecar.reliability.callbacks import (
    MAXIMUM_AWAITED,
    MAXIMUM_OUTGOING,
    MAXIMUM_OUTGOING_BYTES,
    MAXIMUM_URL,
    WAITS,
)
from pillion_sidecar.reliability.publishers import MAXIMUM_PUBLISHERS
from pillion_sidecar.reliability.receipts import (
    MAXIMUM_DISCARDS_DETAILED,
    MAXIMUM_RECEIPTS,
)
from pillion_sidecar.settings import INTAKE_PORT, TELEMETRY_PORT
from pillion_sidecar.telemetry.administration import (
    DEFAULT_DRAIN_TIMEOUT,
    DEFAULT_LIMIT,
    MAXIMUM_LIMIT,
)
from pillion_sidecar.telemetry.definitions import METRICS
from pillion_sidecar.telemetry.events import EVENTS
from support.columns import column_bytes
from support.house import ROOT
from support.manual import codes, numbers, table, text_of

LIMITS = IntakeLimits()
DOOR = Limits()
SERVICE = IndicationService()
RETRY = RetryPolicy()
DESTINATION = ListenerDestination(
    name="siem", uid="1", destination="http://siem.example/", protocol="CIM-XML"
)
ON_DISK_WINDOW = duplicate_window(
    Configuration(revision="", destinations={"siem": DESTINATION}), Durability.DISK
)


#: The pages that name metrics.
PAGES_OF_METRICS = (
    "delivery.md",
    "getting-started.md",
    "journal-care.md",
    "logs.md",
    "monitoring.md",
    "gateways.md",
    "publishing.md",
    "publishing-to-a-gateway.md",
    "restart.md",
    "runbook.md",
    "running.md",
    "sizing.md",
)


def first_codes(name: str, head: str) -> set[str]:
    return {code for row in table(name, head) for code in codes(row[0])}


@pytest.mark.parametrize(
    ("begins", "figures"),
    [
        ("target of a request", [8190, 400]),
        ("headers of a request", [MAXIMUM_HEADERS, 8190, 400]),
        ("head of a request", [HEAD_BYTES, 431]),
        ("one indication", [LIMITS.line_bytes]),
        ("a batch of CloudEvents", [LIMITS.document_bytes]),
        ("bodies held", [MOST_BODY_BYTES, GRACE_SECONDS, 503]),
        ("an NDJSON body", [LIMITS.stream_bytes]),
        ("requests read", [MOST_READING, 503]),
        ("requests that wait", [MOST_WAITING, 503]),
        ("refused lines", [MAXIMUM_REFUSED]),
        ("discards listed in an answer", [MAXIMUM_DISCARDS_DETAILED]),
        ("a body that does not arrive", [LIMITS.idle_seconds, LIMITS.progress_bytes, 408]),
        ("the longest wait", [LIMITS.wait_seconds]),
        ("receipts kept", [MAXIMUM_RECEIPTS]),
        ("publishers known for flush", [MAXIMUM_PUBLISHERS]),
        ("publishers known for `publisherRateLimit`", [MOST_PUBLISHERS, MOST_CHARACTERS]),
        ("lists of faults", [MOST_ASKED, 503]),
        ("callbacks awaited", [MAXIMUM_AWAITED, 503]),
        ("callbacks waiting", [MAXIMUM_OUTGOING, MAXIMUM_OUTGOING_BYTES]),
        ("discards listed in a callback", [CALLBACK_DISCARDS]),
    ],
)
def test_a_limit_of_intake_is_the_constant(begins: str, figures: list[float]) -> None:
    (row,) = [row for row in table("publishing.md", "what") if row[0].startswith(begins)]
    assert numbers(row[1]) == figures


@pytest.mark.parametrize(
    ("begins", "figures"),
    [
        ("in the TLS handshake", [DOOR.handshakes, HANDSHAKE_SECONDS]),
        ("these, and those", [DOOR.unproven, PROOF_SECONDS]),
        ("all", [DOOR.total]),
    ],
)
def test_a_limit_of_a_gateways_door_is_the_constant(begins: str, figures: list[float]) -> None:
    (row,) = [
        row for row in table("publishing-to-a-gateway.md", "which") if row[0].startswith(begins)
    ]
    assert numbers(row[1]) == figures


BOUNDS = {
    "the deliverer with nothing": (1, BASE_BYTES),
    "bodies held": (MOST_BODY_BYTES, LIMITS.document_bytes),
    "a request that is": (1, REQUEST_BYTES),
    "connections of intake": (INTAKE_CONNECTIONS, PLAIN_CONNECTION_BYTES),
    "connections of telemetry": (SMALL_CONNECTIONS, PLAIN_CONNECTION_BYTES),
    "connections of administration": (SMALL_CONNECTIONS, PLAIN_CONNECTION_BYTES),
    "requests that wait": (MOST_WAITING, WAITING_BYTES),
}
GATEWAY = "connections of a gateway"


def chart_limit() -> int:
    values = yaml.safe_load((ROOT / "charts/pillion/values.yaml").read_text())
    text = values["deliverer"]["resources"]["limits"]["memory"]
    return int(text.removesuffix("Mi")) * MIB


def rounded_up(size: int) -> int:
    return -(-size // MIB)


def test_the_bounds_are_the_constants_and_their_sum_is_under_the_charts_limit() -> None:
    together = {
        name: number if name.startswith("bodies") else number * each
        for name, (number, each) in BOUNDS.items()
    }
    rows = table("sizing.md", "part")
    assert len(rows) == len(BOUNDS) + 1
    for name, (number, each) in BOUNDS.items():
        (row,) = [row for row in rows if row[0].startswith(name)]
        figures = [numbers(cell)[0] for cell in row[1:]]
        assert figures == [number, each, rounded_up(together[name])], name
    assert sum(together.values()) < chart_limit()


def test_a_gateways_connections_fit_in_the_charts_limit_with_all_else() -> None:
    number = tls_connections(
        chart_limit(),
        bodies=MOST_BODY_BYTES,
        plain=2 * SMALL_CONNECTIONS,
        waiting=MOST_WAITING,
        most=DOOR.total,
    )
    (row,) = [row for row in table("sizing.md", "part") if row[0].startswith(GATEWAY)]
    size = number * TLS_CONNECTION_BYTES
    assert [numbers(cell)[0] for cell in row[1:]] == [
        number,
        TLS_CONNECTION_BYTES,
        rounded_up(size),
    ]
    others = [
        rows * each
        for name, (rows, each) in BOUNDS.items()
        if not name.startswith(("bodies", "connections of intake"))
    ]
    assert sum(others) + MOST_BODY_BYTES + size <= chart_limit()
    assert f"{number} at 384 MiB" in text_of("publishing-to-a-gateway.md")


def test_the_head_of_a_request_is_as_long_as_the_constants_say() -> None:
    heads = [numbers(row[1]) for row in table("sizing.md", "head of a request")]
    assert heads == [[HEAD_BYTES], [TELEMETRY_HEAD_BYTES]]
    # What a connection is reckoned at holds its head as it came and as it was read.
    assert 2 * HEAD_BYTES < PLAIN_CONNECTION_BYTES


def test_the_shares_of_open_files_are_the_constants() -> None:
    told = numbers(text_of("sizing.md").split("## Open files")[1].split("##")[0])
    for figure in (MOST_DESCRIPTORS, KEPT_BACK, INTAKE_CONNECTIONS, SMALL_CONNECTIONS):
        assert figure in told


def test_every_limit_of_intake_is_pinned() -> None:
    assert len(table("publishing.md", "what")) == 20


def test_the_parameters_of_publishing_have_the_stated_defaults_and_bounds() -> None:
    rows = {codes(row[0])[0]: row for row in table("publishing.md", "parameter")}
    assert set(rows) == {"ack", "timeout", "source", "instance", "redeliver", "callback"}
    assert numbers(rows["callback"][2]) == [MAXIMUM_URL]
    assert numbers(rows["timeout"][1]) == [DEFAULT_TIMEOUT]
    assert numbers(rows["timeout"][2]) == [0, LIMITS.wait_seconds]
    assert numbers(rows["source"][2]) == [MAXIMUM_TEXT]


def test_the_parameters_of_a_poll_for_faults_have_the_stated_defaults_and_bounds() -> None:
    rows = {codes(row[0])[0]: row for row in table("publishing.md", "query parameter")}
    assert set(rows) == {"publisher", "instance", "after", "limit"}
    assert numbers(rows["limit"][1]) == [DEFAULT_FAULTS]
    assert numbers(rows["limit"][2]) == [0, MOST_FAULTS_TOLD]


def test_the_waits_between_callbacks_are_those_of_the_source() -> None:
    *first, last = [f"{wait:g}" for wait in WAITS]
    assert f"after {', '.join(first)} and {last} seconds" in text_of("publishing.md")


def test_the_page_names_every_content_type_member_and_class() -> None:
    assert first_codes("publishing.md", "Content-Type") == set(FORMATS)
    assert first_codes("publishing.md", "beside `class` and `properties`") == set(ENVELOPE)
    assert first_codes("publishing.md", "member of a group") == set(MEMBERSHIP)
    text = text_of("publishing.md")
    known = {found.name for found in load_schema() if not found.abstract}
    assert {name for name in known if f"`{name}`" not in text} == set()
    assert f"up to {INSTANCE_DEPTH} deep" in text


def test_the_page_names_every_path_of_exporters() -> None:
    stated = {code.removeprefix("POST ") for code in first_codes("publishing.md", "endpoint")}
    paths = {re.sub(r"\{.*\}", "{anything}", path) for path in CIM_XML_PATHS}
    assert paths <= stated


def test_the_discard_reasons_and_results_are_all_there_are() -> None:
    assert first_codes("delivery.md", "reason") == {reason.value for reason in DiscardReason}
    assert first_codes("listeners.md", "result") == {result.value for result in DeliveryResult}


def test_the_defaults_of_retry_and_subscriptions_are_those_of_the_resources() -> None:
    stated = {
        setting: row[1]
        for row in [*table("delivery.md", "setting"), *table_of_subscriptions()]
        for setting in codes(row[0])
    }
    assert stated["deliveryRetryAttempts"] == str(RETRY.attempts)
    assert stated["deliveryRetryIntervalSeconds"] == f"{RETRY.interval_seconds:g}"
    assert stated["retry.backoff"] == f"`{RETRY.backoff.value}`"
    assert numbers(stated["retry.maximumIntervalSeconds"]) == [RETRY.maximum_interval_seconds]
    assert numbers(stated["retry.jitterPercent"]) == [RETRY.jitter * 100]
    assert numbers(stated["subscriptionRemovalTimeIntervalSeconds"]) == [
        SERVICE.subscription_removal_time_interval_seconds,
        SERVICE.subscription_removal_time_interval_seconds / 86_400,
    ]
    assert stated["subscriptionRemovalAction"] == f"`{SERVICE.subscription_removal_action.value}`"
    policy = IndicationSubscription.__dataclass_fields__["on_fatal_error_policy"].default
    assert stated["onFatalErrorPolicy"] == f"`{policy.value}`"


def test_the_defaults_of_retry_on_disk_are_those_in_force_there() -> None:
    rows = table("delivery.md", "setting")
    stated = {setting: row[2] for row in rows for setting in codes(row[0])}
    assert stated["deliveryRetryAttempts"] == "no limit"
    assert RETRY_ON_DISK.attempts is None
    assert numbers(stated["deliveryRetryIntervalSeconds"]) == [RETRY_ON_DISK.interval_seconds]
    assert stated["retry.backoff"] == f"`{RETRY_ON_DISK.backoff.value}`"
    assert numbers(stated["retry.maximumIntervalSeconds"]) == [
        RETRY_ON_DISK.maximum_interval_seconds
    ]
    assert numbers(stated["retry.jitterPercent"]) == [RETRY_ON_DISK.jitter * 100]


def table_of_subscriptions() -> list[list[str]]:
    """The second table of settings on the page of delivery."""
    _, _, behind = text_of("delivery.md").partition("## Subscriptions\n\n")
    lines = behind.splitlines()[2:]
    return [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    ]


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (
            "delivery.md",
            f"{QUEUE_SIZE_ON_DISK:,} by default where `durability` is `Disk`, "
            f"else {QUEUE_SIZE_IN_MEMORY:,}.",
        ),
        (
            "restart.md",
            f"`shutdownGracePeriodSeconds` ({SERVICE.shutdown_grace_period_seconds:g})",
        ),
        (
            "delivery.md",
            f"{effective_lifetime(DESTINATION, Durability.MEMORY):g} seconds with 3 retries of 30"
            " seconds",
        ),
        ("delivery.md", f"it is {effective_lifetime(DESTINATION, Durability.DISK):,.0f} seconds"),
        ("publishing.md", f"more: {ON_DISK_WINDOW:,.0f} on disk)"),
        ("delivery.md", f"{REMEMBERED_EVENTS:,} events are remembered"),
        (
            "running.md",
            f"`shutdownGracePeriodSeconds` ({SERVICE.shutdown_grace_period_seconds:g})",
        ),
        (
            "delivery.md",
            f"| the indications that wait for a slow disk, at {MAXIMUM_WAITING // MIB} MiB |",
        ),
        ("restart.md", f"delivered in the last {SETTLE_SECONDS:g} seconds before a crash"),
        ("sizing.md", f"at most {VOLUME_SHARE * 100:.0f} % of `deliverer.storage.sizeLimit`"),
        ("sizing.md", f"or {DEFAULT_BYTES >> 30} GiB without the field"),
        ("sizing.md", f"at {IDENTITY_BYTES} bytes each"),
        ("sizing.md", f"`queueSize` ({QUEUE_SIZE_ON_DISK:,} with `Disk`)"),
        ("monitoring.md", f"`GET /v1/queues?limit={DEFAULT_LIMIT}&after=NAME`"),
        ("monitoring.md", f"at most {MAXIMUM_LIMIT:,} at a time"),
        ("monitoring.md", f"`POST /drain?timeout={DEFAULT_DRAIN_TIMEOUT:g}`"),
        ("monitoring.md", f"http://127.0.0.1:{TELEMETRY_PORT}/metrics"),
        ("publishing.md", f"`http://127.0.0.1:{INTAKE_PORT}` unless"),
        ("publishing.md", f"`duplicateWindowEntries` ({SERVICE.duplicate_window_entries:,})"),
        ("listeners.md", "port {} or {}".format(*(one.port for one in cim_xml.PROTOCOL.schemes))),
        ("listeners.md", f"{HEAD_LIMIT // 1024} KiB of head, {BODY_LIMIT // 1024} KiB of body"),
        ("listeners.md", f"idle for {IDLE_SECONDS:g} seconds"),
        ("filters.md", f"nested at most {FILTER_DEPTH} deep"),
    ],
)
def test_a_figure_in_a_sentence_is_the_constant(page: str, sentence: str) -> None:
    assert sentence in " ".join(text_of(page).split())


@pytest.mark.parametrize("row", table("sizing.md", "`sizeLimit`"), ids=lambda row: row[0])
def test_what_a_journal_holds_by_the_size_of_its_volume_is_as_stated(row: list[str]) -> None:
    size, unit = re.findall(r"^(\d+)([MG])i", row[0])[0]
    volume = int(size) * {"M": MIB, "G": 1024 * MIB}[unit]
    settings = JournalSettings(durability=Durability.DISK, maximum_bytes=int(volume * VOLUME_SHARE))
    bound = settings.live_bound
    for figure, held in zip(row[1:], (settings.maximum_bytes, bound, OVER * bound), strict=True):
        stated = float(figure.removesuffix(" MiB").replace(",", ""))
        least_digit = 0.1 if "." in figure else 1
        assert 0 <= held / MIB - stated < least_digit


def test_what_an_entry_behind_the_front_takes_is_as_stated() -> None:
    # Indications of 600 B, all of them for one subscription of one destination.
    count = 100_000
    packed = CompactEntries(
        ids=array("Q", range(1, count + 1)),
        positions=array("Q", ((one // 27_000) << 32 | one % 27_000 * 600 for one in range(count))),
        numbers=array("Q", range(count)),
        subscriptions=array("I", bytes(4 * count)),
    )
    least = column_bytes(packed) // count
    few = CompactEntries()
    few.append(CompactEntry(1, 2, 3, 4, 5))
    most = column_bytes(few)
    assert f"the first {FRONT_ENTRIES} entries loaded" in text_of("architecture.md")
    assert f"in columns, {least} to {most} bytes an entry" in text_of("architecture.md")
    stated = f"among the first {FRONT_ENTRIES} of a queue ({GROUP_SEARCH} with `ordering: Group`)"
    assert f"{stated}; each entry behind them takes {least} to {most} bytes" in text_of("sizing.md")
    assert f"1,000,000 entries on disk take {least} to {most} MB" in text_of("sizing.md")


def test_the_stated_size_of_a_volume_has_room_for_the_stated_outage() -> None:
    assert "*sizeLimit = 3 × W + 50 MiB*" in text_of("sizing.md")
    for volume in range(10 * MIB, 64 << 30, 7 * MIB):
        settings = JournalSettings(
            durability=Durability.DISK, maximum_bytes=int(volume * VOLUME_SHARE)
        )
        waiting = OVER * settings.live_bound
        assert volume <= 3 * waiting + 50 * MIB


def test_the_page_of_filters_names_every_function() -> None:
    text = text_of("filters.md")
    assert {function for function in Function if f"`{function}`" not in text} == set()


def test_metrics_and_events_that_a_page_names_exist() -> None:
    series = {
        metric.name + suffix for metric in METRICS for suffix in ("", "_bucket", "_sum", "_count")
    }
    events = {event.name for event in EVENTS}
    for page in PAGES_OF_METRICS:
        text = text_of(page)
        assert set(re.findall(r"\bpillion_(?!sidecar\.)[a-z_]+", text)) <= series
    assert first_codes("logs.md", "event") <= events
