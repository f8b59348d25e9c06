"""The file handler: one line for each delivery, in the form of publishers."""

from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.appending import AppendError, Line
from pillion_sidecar.handlers.content import UNSAYABLE, content_of, data_parts
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.coroutine import CoroutineHandler, Progress
from pillion_sidecar.handlers.folder import DeliveryFolder
from pillion_sidecar.handlers.http.target import InvalidDestinationError, check_forms
from pillion_sidecar.protocols.file import PROTOCOL, FileOptions

_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
_encode = msgspec.json.encode


def render_line(delivery: Delivery) -> bytes:
    """Return a line of ``POST /v1/indications`` with the properties that the delivery sets. Raises
    ``UNSAYABLE`` if the body is no instance."""
    indication = delivery.indication
    content = content_of(indication, delivery.selection)
    parts = [b"".join(data_parts(content, delivery))[:-1]]
    if indication.source is not None:
        parts += (b',"source":', _encode(indication.source))
    if indication.group is not None:
        parts += (b',"group":', _encode(indication.group))
    return b"".join([*parts, b"}\n"])


@dataclass(frozen=True, slots=True)
class FileDestination:
    folder: DeliveryFolder
    name: str
    #: The file in messages.
    shown: str
    options: FileOptions

    async def deliver(self, delivery: Delivery, progress: Progress) -> DeliveryOutcome:
        """See :class:`pillion_sidecar.handlers.coroutine.Deliver`. Success: it is on the disk."""
        try:
            text = render_line(delivery)
        except UNSAYABLE as error:
            reason = f"a line cannot express this: {error}"
            return DeliveryOutcome(DeliveryResult.FATAL_ERROR, reason)
        progress.doing = "waiting for other lines of the file"
        line = Line(text, self.options.max_bytes, self.options.max_files)
        try:
            await self.folder.append(self.name, line, progress)
        except AppendError as error:
            result = DeliveryResult.POST_DELIVERY_ERROR if error.may_have else DeliveryResult.ERROR
            return DeliveryOutcome(result, f"{self.shown}: {error}")
        return _SUCCESS


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    check_forms(destination.destination, PROTOCOL)
    if context.delivery_folder is None:
        raise InvalidDestinationError(
            "this deliverer was started without --delivery-folder, the folder of such files",
            cause=HoldCause.PROTOCOL,
        )
    options = destination.options
    name = urlsplit(destination.destination).path.removeprefix("/")
    file = FileDestination(
        context.delivery_folder,
        name,
        "its file" if destination.url_is_secret else f"file {name}",
        options if isinstance(options, FileOptions) else FileOptions(),
    )
    return CoroutineHandler(
        file.deliver,
        name=destination.name,
        timers=context.parts.timers,
        timeout=destination.timeout_seconds,
    )
