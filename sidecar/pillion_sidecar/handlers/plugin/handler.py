"""The handler of protocol Plugin: each destination has a link to the program that its URL names."""

import os
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.plugin import messages
from pillion_sidecar.handlers.plugin.lines import LinkNames, PluginLog
from pillion_sidecar.handlers.plugin.link import Link
from pillion_sidecar.handlers.plugin.messages import MESSAGE_LIMIT
from pillion_sidecar.handlers.plugin.process import ProcessOpener, plugin_environment
from pillion_sidecar.handlers.plugin.replies import Command
from pillion_sidecar.handlers.plugin.socket import SocketOpener
from pillion_sidecar.handlers.plugin.wire import Opener
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.settings import PluginEndpoint

#: Bytes of the line around the params.
_ENVELOPE = 100
_MOST_PARAMS = MESSAGE_LIMIT - _ENVELOPE
_NAMES_SHOWN = 10


class PluginHandler:
    """Delivers to one destination. A delivery is timed by the plug-in, from when it takes it up;
    until then it waits in the link (S2.3, S2.5)."""

    def __init__(self, link: Link, *, timeout: float) -> None:
        self._link = link
        self._timeout = timeout

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            params = messages.deliver_params(delivery, timeout=self._timeout)
        except (ValueError, RecursionError) as error:
            self._refuse(done, f"JSON cannot express this: {error}")
            return
        if len(params) > _MOST_PARAMS:
            self._refuse(
                done,
                f"the message of {len(params)} bytes is longer than a plug-in takes,"
                f" {MESSAGE_LIMIT} bytes",
            )
            return
        self._link.send(Command(params, done))

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing is rendered ahead: the body is sent as it is."""

    def close(self) -> None:
        self._link.close()

    def _refuse(self, done: Callable[[DeliveryOutcome], None], detail: str) -> None:
        outcome = DeliveryOutcome(DeliveryResult.FATAL_ERROR, detail)
        self._link.refuse(Command(b"", done), outcome)


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    name = _name(destination.destination)
    endpoint = context.plugins.get(name)
    if endpoint is None:
        raise InvalidDestinationError(
            _undeclared(name, context.plugins, is_secret=destination.url_is_secret),
            cause=HoldCause.PROTOCOL,
        )
    parts = context.parts
    names = LinkNames(
        plugin=name, destination=destination.name, is_hidden=destination.url_is_secret
    )
    log = PluginLog(names, clock=parts.clock)
    link = Link(
        opener=_opener(endpoint, context, log),
        slots=context.plugin_links,
        clock=parts.clock,
        timers=parts.timers,
        timeout=destination.timeout_seconds,
        initialize=messages.initialize_params(
            destination=destination.name,
            url=destination.destination,
            service=context.service_name,
            timeout=destination.timeout_seconds,
        ),
        names=names,
        log=log,
    )
    return PluginHandler(link, timeout=destination.timeout_seconds)


def _name(url: object) -> str:
    """The name in ``plugin://NAME/path``. Raises InvalidDestinationError."""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme != "plugin" or not parts.netloc:
        raise InvalidDestinationError(f"destination {url!r} is not plugin://NAME")
    return parts.netloc


def _undeclared(name: str, declared: Mapping[str, PluginEndpoint], *, is_secret: bool) -> str:
    named = "the plug-in in its URL" if is_secret else f"plug-in {name!r}"
    shown = ", ".join(sorted(declared)[:_NAMES_SHOWN]) or "none"
    more = len(declared) - _NAMES_SHOWN
    rest = f" and {more} more" if more > 0 else ""
    return (
        f"{named} is not declared: start the deliverer with --plugin NAME=COMMAND"
        f" (declared: {shown}{rest})"
    )


def _opener(endpoint: PluginEndpoint, context: HandlerContext, log: PluginLog) -> Opener:
    timers = context.parts.timers
    if endpoint.socket is not None:
        return SocketOpener(path=endpoint.socket, timers=timers)
    environment = plugin_environment(os.environ)
    return ProcessOpener(command=endpoint.command, environment=environment, timers=timers, log=log)
