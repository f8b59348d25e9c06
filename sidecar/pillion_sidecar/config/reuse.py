"""Takes what has not changed from the configuration before. Pure.

Whoever applies a revision then sees at a glance what is the same, however many destinations there
are: the comparing is done here, in the thread that loads.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from pillion_sidecar.config.resources import Configuration

_T = TypeVar("_T")


def reuse(configuration: Configuration, before: Configuration | None) -> Configuration:
    """The same configuration, made of the values of ``before`` wherever they are equal."""
    if before is None:
        return configuration
    return replace(
        configuration,
        destinations=_kept(configuration.destinations, before.destinations),
        filters=_kept(configuration.filters, before.filters),
        subscriptions=_kept(configuration.subscriptions, before.subscriptions),
        relayed=_kept(configuration.relayed, before.relayed),
    )


def _kept(values: Mapping[str, _T], before: Mapping[str, _T]) -> dict[str, _T]:
    kept = {}
    for name, value in values.items():
        known = before.get(name)
        kept[name] = known if known is not None and known == value else value
    return kept
