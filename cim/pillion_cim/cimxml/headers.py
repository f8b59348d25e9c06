"""The HTTP headers of export requests and responses (D.1, DSP0200 3.3)."""

from collections.abc import Iterable, Mapping
from typing import Final

from pillion_cim.values import is_language_tag

#: What every export request carries; the sender adds Host and Content-Length. Nothing more: each
#: further header makes some known listener refuse the request (Accept other than */*, TE,
#: Accept-Range, Content-Encoding, a charset spelled otherwise).
EXPORT_HEADERS: Final = (
    ("Content-Type", "application/xml; charset=utf-8"),
    ("Accept", "*/*"),
    ("CIMExport", "MethodRequest"),
    ("CIMExportMethod", "ExportIndication"),
    ("CIMProtocolVersion", "1.0"),
)

#: What every export response with status 200 carries.
RESPONSE_HEADERS: Final = (
    ("Content-Type", "application/xml; charset=utf-8"),
    ("CIMExport", "MethodResponse"),
)


def export_headers(languages: Iterable[str] = ()) -> tuple[tuple[str, str], ...]:
    """Return the headers of an export request, in order.

    ``languages`` are the tags of the content's languages (S0.21). Raises ValueError for a text that
    is no language tag.
    """
    tags = tuple(languages)
    if not tags:
        return EXPORT_HEADERS
    for tag in tags:
        if not is_language_tag(tag):
            raise ValueError(f"not a language tag: {tag[:40]!r}")
    return (*EXPORT_HEADERS, ("Content-Language", ", ".join(tags)))


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header's value whatever the case of its name, stripped; None if it is not there.

    An extension prefix of RFC 2774, as in ``73-CIMExport``, is seen through.
    """
    value = headers.get(name)
    if value is None:
        wanted = name.casefold()
        value = headers.get(wanted)
        if value is None:
            value = next((v for k, v in headers.items() if _plain(k) == wanted), None)
    return value.strip() if value is not None else None


def _plain(name: str) -> str:
    folded = name.casefold()
    return folded[3:] if folded[:2].isdigit() and folded[2:3] == "-" else folded
