"""Which stores a service names, and whether the deliverer can reach them."""

from collections.abc import Sequence

from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.schema.stores import StoreMember, StoresPolicy, StreamMember
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.gateway import relay_target
from pillion_sidecar.stores.quorum import Membership, StoreGroup

#: Stands for the name of a gateway in ``--gateway``.
SERVICE_IN_URL = "{service}"


def membership_of(policy: StoresPolicy) -> Membership:
    """Raises ValueError."""
    return Membership(
        groups=tuple(
            StoreGroup(
                name=group.name, members=_names(group.members), backups=_names(group.backups)
            )
            for group in policy.groups
        ),
        within=policy.within,
        between=policy.between,
        consensus=policy.consensus,
    )


def _names(members: Sequence[StoreMember]) -> tuple[str, ...]:
    return tuple(member.store for member in members)


def streams_of(policy: StoresPolicy) -> list[StreamMember]:
    """The stores that are streams."""
    return [one.stream for one in members_of(policy) if one.stream is not None]


def members_of(policy: StoresPolicy) -> list[StoreMember]:
    return [store for group in policy.groups for store in group.members + group.backups]


def check_access(policy: StoresPolicy, *, service: str, gateway: str | None) -> None:
    """``gateway``: the URL of gateways. Raises ConfigurationError: the deliverer does not know how
    to reach each store that is a gateway."""
    names = [one.gateway for one in members_of(policy) if one.gateway is not None]
    if not names:
        return
    if gateway is None:
        message = "needs gateways, and this deliverer was not told how to reach any"
    elif len(names) > 1 and SERVICE_IN_URL not in gateway:
        # One gateway would count as all of them.
        message = f"names {len(names)} gateways, and --gateway {gateway} leads to one gateway"
    else:
        _check_urls(names, gateway, service=service)
        return
    raise ConfigurationError(
        [
            Problem(
                reason="Invalid",
                message=message,
                remedy=f"Start it with --gateway URL, where {SERVICE_IN_URL} in the URL stands for"
                " the name of a gateway, or remove stores.",
                resource=f"IndicationService/{service}",
                field="spec.stores",
                value=", ".join(group.name for group in policy.groups),
            )
        ]
    )


def _check_urls(names: Sequence[str], gateway: str, *, service: str) -> None:
    """Raises ConfigurationError: a name makes no URL, as one that is put where the port is."""
    for name in names:
        try:
            relay_target(gateway, name)
        except InvalidDestinationError as error:
            raise ConfigurationError(
                [
                    Problem(
                        reason="Invalid",
                        message=f"names a store that has no URL by --gateway {gateway}: {error}",
                        remedy=f"Start it with another URL, where {SERVICE_IN_URL} may be the host,"
                        " or name the store otherwise.",
                        resource=f"IndicationService/{service}",
                        field="spec.stores.groups",
                        value=name,
                    )
                ]
            ) from None
