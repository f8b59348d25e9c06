"""The one way in which Pillion parses XML from strangers.

No entity is expanded, nothing is fetched, no limit of the parser is lifted, and a document with a
DOCTYPE is refused: CIM-XML has no use for one, and every XML bomb needs one.
"""

import re
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from lxml import etree

    Element: TypeAlias = etree._Element
else:
    Element: TypeAlias = object

_ENCODING: Final = re.compile(rb"<\?xml[^>]{0,200}?\sencoding\s*=\s*[\"']([^\"'>]{0,40})[\"']")


class XMLRefusedError(Exception):
    """The document is not well formed, or not one that is taken from strangers."""


class DoctypeRefusedError(XMLRefusedError):
    """The document has a DOCTYPE."""


def parse_xml(document: bytes) -> Element:
    """Return the root element, comments and processing instructions gone.

    Raises XMLRefusedError. The size of the document is for the caller to bound; the depth is
    bounded by the parser, at 256.
    """
    # Not before the first document: 4 MiB that a deliverer which meets no CIM-XML need not hold.
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(document, parser)
    except (etree.LxmlError, ValueError, LookupError) as error:
        raise XMLRefusedError(str(error)[:200]) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise DoctypeRefusedError("a document type declaration is not taken")
    return root


def declared_encoding(document: bytes) -> bytes | None:
    """Return the encoding that the XML declaration names, in small letters; None without one."""
    found = _ENCODING.match(document)
    return found.group(1).lower() if found is not None else None
