"""The configuration of a deliverer as values: parsed, defaulted and valid. Times are in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.filter import IndicationFilter
from pillion_sidecar.config.schema.replay import IndicationReplay
from pillion_sidecar.config.schema.service import IndicationService
from pillion_sidecar.config.schema.subscription import IndicationSubscription

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One revision. Each subscription's filter, destination and service are present."""

    revision: str
    service: IndicationService = field(default_factory=IndicationService)
    destinations: Mapping[str, ListenerDestination] = field(default_factory=dict)
    filters: Mapping[str, IndicationFilter] = field(default_factory=dict)
    subscriptions: Mapping[str, IndicationSubscription] = field(default_factory=dict)
    #: Subscriptions of other services that relay or hand over to this gateway, by name. Relayed
    #: indications name them by uid: the sidecars have applied the filters.
    relayed: Mapping[str, IndicationSubscription] = field(default_factory=dict)
    #: Replays of this service, by name.
    replays: Mapping[str, IndicationReplay] = field(default_factory=dict)
    #: Sentences for a log.
    warnings: tuple[str, ...] = ()
    #: Destinations held because of a fault.
    held: frozenset[str] = frozenset()
    #: Filters whose last good version stays in force: name to reason.
    kept_filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_subscriptions(self) -> Mapping[str, IndicationSubscription]:
        return {**self.subscriptions, **self.relayed} if self.relayed else self.subscriptions


def reuse(configuration: Configuration, before: Configuration | None) -> Configuration:
    """Replace equal values by those of ``before``, so that the thread that applies the
    configuration can compare by identity."""
    if before is None:
        return configuration
    return replace(
        configuration,
        destinations=_kept(configuration.destinations, before.destinations),
        filters=_kept(configuration.filters, before.filters),
        subscriptions=_kept(configuration.subscriptions, before.subscriptions),
        relayed=_kept(configuration.relayed, before.relayed),
        replays=_kept(configuration.replays, before.replays),
    )


def _kept(values: Mapping[str, _T], before: Mapping[str, _T]) -> dict[str, _T]:
    kept = {}
    for name, value in values.items():
        known = before.get(name)
        kept[name] = known if known is not None and known == value else value
    return kept
