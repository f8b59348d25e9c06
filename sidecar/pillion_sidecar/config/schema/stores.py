"""The stores that keep copies of a journal."""

from enum import StrEnum

from pillion_sidecar.config.schema.common import (
    LABELLED,
    SERVICE_NAME_LENGTH,
    SERVICE_NAME_RULES,
    object_name,
    reference,
    secret_key_reference,
    secret_names,
)
from pillion_sidecar.config.schema.listener import BASIC, BEARER, Credentials, TLSOptions
from pillion_sidecar.config.schema.urls import is_loopback, url_rules
from pillion_sidecar.fields import (
    Field,
    Integer,
    JSONObject,
    ListOf,
    Quantity,
    Rule,
    Text,
    amount,
    cel_matches,
    declared,
    matching,
    resource,
    structure,
    text_matching,
    whole,
)
from pillion_sidecar.protocols.declaration import LOOPBACK_HOST
from pillion_sidecar.protocols.nats import PROTOCOL

MOST_GROUPS = 8
MOST_MEMBERS = 8
MOST_SERVERS = 5
#: Default flightSize.
FLIGHT_SIZE = "64Mi"
#: Default stabilityLifetimeSeconds.
STABILITY_LIFETIME = 1200
#: Default leaseSeconds.
LEASE = 30


class Within(StrEnum):
    """How many stores of a group make a position stable in the group."""

    QUORUM = "Quorum"
    ALL = "All"


class Between(StrEnum):
    """How many groups make a position stable."""

    ANY = "Any"
    MAJORITY = "Majority"
    ALL = "All"
    #: All groups of which enough stores respond, and at least one.
    ALL_ACTIVE = "AllActive"


class Consensus(StrEnum):
    """Which of the positions of several stores is announced."""

    LOWEST = "Lowest"
    #: The greatest position that more than half of the stores have.
    MAJORITY = "Majority"
    HIGHEST = "Highest"


class Fencing(StrEnum):
    """When a deliverer stops, because another may have claimed its journal."""

    #: Once the stores tell of it.
    CLAIM = "Claim"
    #: Also once too few of them have answered for ``leaseSeconds``.
    LEASE = "Lease"


class WithoutQuorum(StrEnum):
    """What happens to new indications while too few stores take copies."""

    REFUSE = "Refuse"
    CONTINUE = "Continue"


class SyncInterval(StrEnum):
    """What the servers do before they acknowledge a message; no client can ask them."""

    ALWAYS = "Always"


_TLS = structure(
    Field(
        "caSecretRef",
        secret_key_reference("the certificates, in PEM", key="ca.crt"),
        f"The Secret, {LABELLED}, with the certificate authorities of the servers, instead of "
        "those that the system trusts.",
        assumed="the authorities that the system trusts",
    ),
    Field(
        "clientCertificateSecretRef",
        reference("Secret"),
        f"The Secret of type kubernetes.io/tls, {LABELLED}, with the tls.crt and tls.key that the "
        "deliverer presents to the servers.",
    ),
    Field(
        "serverName",
        text_matching(
            "[A-Za-z0-9.:_-]+",
            max_length=253,
            message="is not a host name",
            remedy="Write the name in the servers' certificates.",
        ),
        "The name that the servers' certificates must contain, if it is not the host of the URL.",
        assumed="the host of the URL",
    ),
)
_CREDENTIALS = structure(
    Field(
        "basic",
        BASIC,
        "A user name and a password.",
    ),
    Field(
        "bearer",
        BEARER,
        "A token.",
    ),
    rules=(
        Rule(
            cel="has(self.basic) != has(self.bearer)",
            holds=lambda credentials: len(credentials) == 1,
            message="holds none of basic and bearer, or both",
            remedy="Write one of them, or remove credentials.",
        ),
    ),
)

_SECURE, _PLAIN = "(?i:tls)://.*", "(?i:nats)://.*"
_LOOPBACK = f"(?i:nats)://{LOOPBACK_HOST}(:[0-9]*)?/?"
_is_secure, _is_plain = whole(_SECURE), whole(_PLAIN)


def _all_secure(member: JSONObject) -> bool:
    return all(map(_is_secure, member["servers"]))


@resource
class StreamMember:
    """A stream of JetStream."""

    name: str = declared(
        type=object_name(63),
        description="The name of the store in messages, metrics and states. It differs from those "
        "of all other stores.",
    )
    servers: tuple[str, ...] = declared(
        type=ListOf(
            item=Text(
                min_length=1,
                max_length=256,
                rules=(
                    *url_rules(
                        PROTOCOL.schemes,
                        credentials="Put them into a Secret, and name it in credentials.basic.",
                    ),
                    *(
                        matching(
                            form.regex,
                            # Others have a rule of their own.
                            when=r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]*",
                            message=form.message,
                            remedy="Write nats://host:port or tls://host:port only.",
                        )
                        for form in PROTOCOL.url_forms
                    ),
                ),
            ),
            max_items=MOST_SERVERS,
            atomic=True,
        ),
        description="The URLs of NATS servers of one cluster: tls://host:port, or nats://host:port "
        "without TLS. The deliverer is connected to one of them, and after a failure to the next.",
    )
    stream: str = declared(
        type=text_matching(
            "[!-)+,/-=?-~-]+",
            max_length=255,
            message="is not the name of a stream",
            remedy="Write printable ASCII without spaces, '.', '*' and '>'.",
        ),
        description="The stream. Pillion does not create it. It needs storage file, three replicas "
        "or more, discard new, allow_direct, and no setting by which it removes messages itself; "
        "the deliverer checks that. Any number of journals share it.",
    )
    subject: str = declared(
        default="pillion.journals",
        type=text_matching(
            r"[!-#%-)+,/-=?-~-][!-)+,/-=?-~-]*(\.[!-)+,/-=?-~-]+)*",
            max_length=190,
            message="is not the beginning of a subject",
            remedy="Write words of printable ASCII with '.' between them, without '*' and '>', and "
            "without '$' at the start.",
        ),
        description="The beginning of the subjects of journals. The stream has the subjects behind "
        "it, such as pillion.journals.>, and nobody else publishes there.",
    )
    #: None: not declared.
    sync_interval: SyncInterval | None = declared(
        default=None,
        assumed="not declared, and the store is refused",
        description="Declares that all servers of the stream have sync_interval: always in their "
        "jetstream block. Otherwise they acknowledge what is not on their disks yet, and a store "
        "does not count. No client can ask them.",
    )
    tls_first: bool = declared(
        default=False,
        description="Whether the TLS handshake comes before all else, as servers with "
        "handshake_first want it.",
    )
    tls: TLSOptions = declared(
        default=TLSOptions(),
        type=_TLS,
        description="How the deliverer verifies the servers, and which certificate it presents.",
    )
    credentials: Credentials | None = declared(
        default=None,
        type=_CREDENTIALS,
        assumed="none",
        description="The credentials that the deliverer presents to the servers.",
    )


_STREAM = structure(
    StreamMember,
    rules=(
        Rule(
            cel="size(self.servers) > 0",
            holds=lambda member: len(member["servers"]) > 0,
            field="servers",
            message="is empty",
            remedy="Write the URL of a server.",
        ),
        Rule(
            cel="has(self.syncInterval)",
            holds=lambda member: "syncInterval" in member,
            field="syncInterval",
            message="is missing, and by default servers acknowledge what is not on their disks yet",
            remedy="Set sync_interval: always in the jetstream block of every server, and declare "
            "it here with syncInterval: Always.",
        ),
        Rule(
            cel="(!has(self.tls) && !self.tlsFirst) || "
            f"self.servers.all(one, {cel_matches('one', _SECURE)})",
            holds=lambda member: (
                ("tls" not in member and not member["tlsFirst"]) or _all_secure(member)
            ),
            field="servers",
            message="names a server without TLS, while tls or tlsFirst is set",
            remedy="Begin each with tls://, or remove tls and tlsFirst.",
        ),
        Rule(
            cel="!has(self.credentials) || self.servers.all(one, "
            f"!{cel_matches('one', _PLAIN)} || {cel_matches('one', _LOOPBACK)})",
            holds=lambda member: (
                "credentials" not in member
                or all(not _is_plain(one) or is_loopback(one) for one in member["servers"])
            ),
            field="credentials",
            message="would be sent unencrypted, since a server is without TLS",
            remedy="Begin each of servers with tls://. (Without TLS they may be sent to loopback "
            "only.)",
        ),
    ),
)


@resource
class StoreMember:
    """A gateway or a stream: one of the two is set."""

    #: The service in mode Gateway.
    gateway: str | None = declared(
        default=None,
        name="gatewayRef",
        type=reference(
            "IndicationService, in mode Gateway, that keeps a copy",
            max_length=SERVICE_NAME_LENGTH,
            rules=SERVICE_NAME_RULES,
        ),
        assumed="the store is that of `nats`",
        description="The gateway that keeps a copy.",
    )
    stream: StreamMember | None = declared(
        default=None,
        name="nats",
        type=_STREAM,
        assumed="the store is that of `gatewayRef`",
        description="The stream of NATS JetStream that keeps a copy. With its replicas it is one "
        "store. Gateways do not adopt from it what a lost pod had pending.",
    )

    @property
    def store(self) -> str:
        """Its name."""
        if self.stream is not None:
            return self.stream.name
        assert self.gateway is not None
        return self.gateway


_MEMBER = structure(
    StoreMember,
    rules=(
        Rule(
            cel="has(self.gatewayRef) != has(self.nats)",
            holds=lambda member: ("gatewayRef" in member) != ("nats" in member),
            message="names none of gatewayRef and nats, or both",
            remedy="Write one of them: each member is one store.",
        ),
    ),
)


@resource
class StoreGroupMembers:
    name: str = declared(type=object_name(63), description="The name of the group.")
    members: tuple[StoreMember, ...] = declared(
        type=ListOf(item=_MEMBER, max_items=MOST_MEMBERS, atomic=True),
        description="The stores of the group. Their number decides how many copies are needed.",
    )
    backups: tuple[StoreMember, ...] = declared(
        default=(),
        type=ListOf(item=_MEMBER, max_items=MOST_MEMBERS, atomic=True),
        description="Further stores of the group. A copy there counts like that of a member, and "
        "their number does not raise how many are needed.",
    )


@resource
class StoresPolicy:
    groups: tuple[StoreGroupMembers, ...] = declared(
        type=ListOf(
            item=structure(
                StoreGroupMembers,
                rules=(
                    Rule(
                        cel="size(self.members) > 0",
                        holds=lambda group: len(group["members"]) > 0,
                        field="members",
                        message="is empty",
                        remedy="Name at least one member.",
                    ),
                ),
            ),
            max_items=MOST_GROUPS,
            key="name",
        ),
        description="The groups of stores, such as one for each zone.",
    )
    within: Within = declared(
        default=Within.QUORUM,
        description="How many copies make a position stable in a group. Quorum: more than half of "
        "the number of its members. All: that number.",
    )
    between: Between = declared(
        default=Between.ANY,
        description="How many groups make a position stable. Any: one. Majority: more than half. "
        "All: every group. AllActive: every group in which enough stores respond, but not none.",
    )
    consensus: Consensus = declared(
        default=Consensus.MAJORITY,
        description="Which of the positions of the stores that respond is announced, in the status "
        "and at a start. Lowest: what each of them has. Majority: what more than half of them "
        "have. Highest: what any of them has. It decides neither what is stable nor from which "
        "copy a start goes on.",
    )
    without_quorum: WithoutQuorum = declared(
        default=WithoutQuorum.REFUSE,
        description="What happens to new indications while more than flightSize is in too few "
        "stores. Refuse: they are refused for now (429), and the reason names the missing stores. "
        "Continue: they are accepted, and are lost with the deliverer's volume; publishers that "
        "ask for stable wait.",
    )
    fencing: Fencing = declared(
        default=Fencing.CLAIM,
        description="When deliveries stop because another deliverer may have claimed the journal. "
        "Claim: once the stores tell of it, and until then both may deliver. Lease: also while "
        "too few stores have answered for leaseSeconds, so listeners wait whenever the stores are "
        "away.",
    )
    lease: int = declared(
        name="leaseSeconds",
        default=LEASE,
        type=Integer(minimum=5, maximum=600),
        description="With fencing Lease: maximum time without answers of enough stores in which "
        "deliveries begin. A deliverer or gateway that takes over the journal waits as long.",
    )
    #: In bytes.
    flight_size: int = declared(
        default=int(amount(FLIGHT_SIZE)),
        type=Quantity(),
        json_default=FLIGHT_SIZE,
        convert=lambda quantity: int(amount(quantity)),
        description="Maximum bytes of the journal that are in too few stores.",
    )
    stability_lifetime: int = declared(
        name="stabilityLifetimeSeconds",
        default=STABILITY_LIFETIME,
        type=Integer(minimum=1, maximum=604_800),
        description="Maximum time that a segment of the journal is kept for stores that lack it. "
        "Afterwards it is removed as without stores. What is pending is never removed.",
    )


STORES = structure(
    StoresPolicy,
    rules=(
        Rule(
            cel="size(self.groups) > 0",
            holds=lambda stores: len(stores["groups"]) > 0,
            field="groups",
            message="is empty",
            remedy="Write at least one group, or remove stores.",
        ),
        Rule(
            cel="!has(self.flightSize) || "
            'quantity(string(self.flightSize)).compareTo(quantity("1")) >= 0',
            holds=lambda stores: amount(stores.get("flightSize", FLIGHT_SIZE)) >= 1,
            field="flightSize",
            message="is less than one byte",
            remedy=f"Write a size such as {FLIGHT_SIZE}.",
        ),
    ),
)


def store_secrets(stores: object) -> set[str]:
    """The names of all Secrets that ``stores`` names, checked or not."""
    return secret_names(STORES, stores) if isinstance(stores, dict) else set()
