"""The stores that keep copies of a journal."""

from enum import StrEnum

from pillion_sidecar.config.schema.common import (
    SERVICE_NAME_LENGTH,
    SERVICE_NAME_RULES,
    object_name,
    reference,
)
from pillion_sidecar.fields import (
    Integer,
    ListOf,
    Quantity,
    Rule,
    amount,
    declared,
    resource,
    structure,
)

MOST_GROUPS = 8
MOST_MEMBERS = 8
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


@resource
class StoreMember:
    #: The service in mode Gateway.
    gateway: str = declared(
        name="gatewayRef",
        type=reference(
            "IndicationService, in mode Gateway, that keeps a copy",
            max_length=SERVICE_NAME_LENGTH,
            rules=SERVICE_NAME_RULES,
        ),
        description="The gateway that keeps a copy.",
    )


@resource
class StoreGroupMembers:
    name: str = declared(type=object_name(63), description="The name of the group.")
    members: tuple[StoreMember, ...] = declared(
        type=ListOf(item=structure(StoreMember), max_items=MOST_MEMBERS, atomic=True),
        description="The stores of the group. Their number decides how many copies are needed.",
    )
    backups: tuple[StoreMember, ...] = declared(
        default=(),
        type=ListOf(item=structure(StoreMember), max_items=MOST_MEMBERS, atomic=True),
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
