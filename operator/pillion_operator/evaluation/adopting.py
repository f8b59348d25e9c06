"""Sessions at stores, and which gateway adopts those of pods that are gone. Pure.

The claimant of a session says which pod writes it, or that an adopter has begun with it. The
operator remembers nothing of either.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pillion_operator.cluster.types import STATEFUL_SET, Object
from pillion_operator.evaluation.references import (
    GATEWAY_REF,
    HAND_OVER_TO,
    gateway_named,
    is_gateway,
    stores_named,
)
from pillion_operator.names import TOKEN_VOLUME
from pillion_operator.polling.adoptions import Waits
from pillion_sidecar.config.schema.stores import LEASE, Between, Fencing, Within
from pillion_sidecar.wire.adoptions import ADOPTER, OrderedGroup, OrderedStores
from pillion_sidecar.wire.journals import JournalCopy

_CLAIMANT = re.compile(
    r"(?P<uid>[0-9A-Za-z-]{1,64})/(?P<service>[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)/[^/]{1,253}"
)


@dataclass(frozen=True, slots=True, order=True)
class Session:
    """The journal of a pod, by its latest claim."""

    id: str
    service: str
    #: Of the pod. None: an adopter has claimed it, so the pod was gone before.
    uid: str | None


def keeps_copies(service: Object) -> bool:
    return is_gateway(service) and bool((service.get("spec") or {}).get("journalCopies"))


def is_adopter(name: str, services: Iterable[Object]) -> bool:
    """Whether one of the services of its namespace has its sessions adopted by this gateway."""
    return any(
        gateway_named(service, HAND_OVER_TO) == name and stores_named(service)
        for service in services
        if not is_gateway(service)
    )


def reaches_stores(
    gateway: Object, *, guests: Iterable[Object | None], live: Iterable[Object]
) -> bool:
    """Whether the pods of a gateway need access to stores. ``guests`` are the services that name
    it, ``live`` its existing objects.

    It stays so: services of jobs come and go, and each change would restart the gateway.
    """
    if not is_gateway(gateway):
        return False
    if is_adopter(gateway["metadata"]["name"], (one for one in guests if one is not None)):
        return True
    return any(
        volume.get("name") == TOKEN_VOLUME
        for one in live
        if one["kind"] == STATEFUL_SET.kind
        for volume in one["spec"]["template"]["spec"].get("volumes") or ()
    )


def sessions_of(copies: Iterable[JournalCopy]) -> Iterator[Session]:
    """The sessions of pods, each by its latest claim at any store. Those that a given name finds
    again name no pod."""
    latest: dict[str, JournalCopy] = {}
    for copy in copies:
        known = latest.get(copy.session)
        if known is None or (known.epoch, known.claimant) < (copy.epoch, copy.claimant):
            latest[copy.session] = copy
    for copy in latest.values():
        found = _CLAIMANT.fullmatch(copy.claimant)
        if found is not None:
            uid = None if found["uid"] == ADOPTER else found["uid"]
            yield Session(copy.session, found["service"], uid)


def stores_to_ask(service: Object) -> OrderedStores | Waits:
    """The membership of a service's stores, as an order has it."""
    stores = (service.get("spec") or {}).get("stores")
    if not isinstance(stores, Mapping) or not stores_named(service):
        return Waits(
            "StoresMissing",
            "stores is not set any more, so it is unknown how many copies are needed. Set it as it "
            "was until they are adopted.",
        )
    groups = []
    for group in stores.get("groups") or ():
        members, backups = (_names(group.get(field) or ()) for field in ("members", "backups"))
        if members is None or backups is None:
            return Waits(
                "StoreNotAdoptable",
                f"group {group.get('name')} of stores has a member that is no gateway, and "
                "gateways adopt from gateways alone. If these have enough copies, take the member "
                "out of stores until they are adopted.",
            )
        groups.append(OrderedGroup(name=str(group.get("name")), members=members, backups=backups))
    return OrderedStores(
        groups=groups,
        within=str(stores.get("within") or Within.QUORUM.value),
        between=str(stores.get("between") or Between.ANY.value),
        lease_seconds=_lease_seconds(stores),
    )


def _lease_seconds(stores: Mapping[str, object]) -> float:
    """How long the deliverer that is gone may deliver on by its lease; 0 without one."""
    if stores.get("fencing") != Fencing.LEASE:
        return 0.0
    seconds = stores.get("leaseSeconds")
    return float(seconds) if isinstance(seconds, int) else float(LEASE)


def _names(members: Collection[Mapping[str, object]]) -> list[str] | None:
    """None: one of them is no gateway."""
    references = [one.get(GATEWAY_REF) for one in members]
    names = [str(one["name"]) for one in references if isinstance(one, Mapping) and "name" in one]
    return names if len(names) == len(members) else None
