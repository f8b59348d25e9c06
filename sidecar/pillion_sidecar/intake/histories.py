"""``POST /v1/relay/outcomes``: the history of an ending sidecar, in parts."""

import asyncio
from functools import partial

import msgspec
from aiohttp import web

from pillion_cim.model import ILLEGAL_IN_XML, is_language_tag
from pillion_cim.schema import Schema
from pillion_sidecar.history.handed_over import CONTENT_TYPE, Part, WrongPart, read_part
from pillion_sidecar.history.outcome import Outcome
from pillion_sidecar.history.taking_over import NotWritten
from pillion_sidecar.http_errors import history_unread, refuse, unavailable
from pillion_sidecar.intake.bodies import BodyError, BodyReader, refuse_encoding
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.decoding import LineError, decode_object, parse_json
from pillion_sidecar.wire.relay import MAXIMUM_LANGUAGES

RETRY_AFTER = 1.0


async def take_part(
    request: web.Request, reader: BodyReader, context: IntakeContext
) -> web.StreamResponse:
    histories, schema = context.histories, context.routes.schema.base
    assert histories is not None
    refusal = refuse_encoding(request)
    if refusal is not None:
        return refusal
    if request.content_type != CONTENT_TYPE:
        return refuse(415, f"Content-Type: {request.content_type[:80]}; send {CONTENT_TYPE}")
    try:
        # Held until it is taken: others wait for their turn with theirs.
        with reader.holding(request) as held:
            body = await reader.whole(request, held, maximum=reader.limits.document_bytes)
            # In a thread: a thousand indications take a while.
            part: Part = await asyncio.to_thread(
                read_part, body, sound_body=partial(_sound_body, schema=schema)
            )
            answer = await histories.take(part)
    except BodyError as error:
        return refuse(error.status, str(error))
    except WrongPart as error:
        return refuse(400, str(error))
    except NotWritten:
        return unavailable("the history is not written yet", retry_after=RETRY_AFTER)
    except OSError as error:
        return history_unread(error)
    return web.json_response(msgspec.to_builtins(answer))


def _sound_body(outcome: Outcome, *, schema: Schema) -> bytes | None:
    """Return the indication of an outcome that can be redriven; None if no line could say it."""
    texts, languages = (outcome.source, outcome.identifier, outcome.group), outcome.languages
    if not all(text is None or ILLEGAL_IN_XML.search(text) is None for text in texts):
        return None
    if len(languages) > MAXIMUM_LANGUAGES or not all(map(is_language_tag, languages)):
        return None
    try:
        decoded = decode_object(parse_json(outcome.body or b""), schema=schema)
    except LineError:
        return None
    return decoded.body if decoded.identifier == outcome.identifier else None
