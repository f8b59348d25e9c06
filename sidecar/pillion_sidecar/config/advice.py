"""Warnings about what is valid, and mostly a mistake."""

import difflib
from collections.abc import Collection, Iterable, Iterator
from urllib.parse import urlsplit

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.urls import is_loopback
from pillion_sidecar.protocols import plugin
from pillion_sidecar.protocols.webhook import Preset, WebhookOptions

#: Services whose URL lets everybody post who knows it.
_URL_IS_CREDENTIAL = (Preset.SLACK, Preset.TEAMS)


def advice(
    destinations: Iterable[ListenerDestination], *, plugins: Collection[str]
) -> Iterator[str]:
    """``plugins``: names of those that the service declares; with none, ``--plugin`` may."""
    for destination in destinations:
        if destination.url_is_hidden:
            continue
        if destination.protocol == plugin.PROTOCOL.name and plugins:
            name = urlsplit(destination.destination).netloc
            if name not in plugins:
                yield _undeclared(destination.name, name, plugins)
        options = destination.options
        if (
            isinstance(options, WebhookOptions)
            and options.preset in _URL_IS_CREDENTIAL
            and not is_loopback(destination.destination)
        ):
            yield (
                f"destination {destination.name}: a URL of {options.preset} is a credential, and"
                " stands in the resource: put it into a Secret, and name that in destinationFrom"
            )


def _undeclared(destination: str, name: str, plugins: Collection[str]) -> str:
    near = difflib.get_close_matches(name, plugins, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"destination {destination}: there is no plug-in {name!r} in deliverer.plugins of the"
        f" service: {hint}there is: {', '.join(sorted(plugins))}"
    )
