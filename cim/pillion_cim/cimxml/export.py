"""The export message: what is the same in every delivery of an indication is written once.

A delivery differs from another in its message identifier, the filter's name, the sequence
identifier and the retry mark; these are spliced in. All versions are those that every known
listener takes (D.1: CIM 2.0, DTD 2.0, protocol 1.0).
"""

from typing import Final

from pillion_cim.cimxml.elements import (
    append_properties,
    append_property,
    open_instance,
    write_item,
)
from pillion_cim.cimxml.escape import escape
from pillion_cim.model import CIMInstance
from pillion_cim.types import CIMType, PropertyType

_BEGIN: Final = (
    '<?xml version="1.0" encoding="utf-8"?>\n<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="'
)
_CALL: Final = (
    '" PROTOCOLVERSION="1.0"><SIMPLEEXPREQ><EXPMETHODCALL NAME="ExportIndication">'
    '<EXPPARAMVALUE NAME="NewIndication">'
)
_END: Final = "</INSTANCE></EXPPARAMVALUE></EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>\n"

_FILTER: Final = '<PROPERTY NAME="IndicationFilterName" TYPE="string"><VALUE>'
_CONTEXT: Final = '<PROPERTY NAME="SequenceContext" TYPE="string"><VALUE>'
_NUMBER: Final = '<PROPERTY NAME="SequenceNumber" TYPE="sint64"><VALUE>'
_CLOSE: Final = "</VALUE></PROPERTY>"
_ARRAY: Final = '<PROPERTY.ARRAY NAME="CorrelatedIndications" TYPE="string"><VALUE.ARRAY>'
_CLOSE_ARRAY: Final = "</VALUE.ARRAY></PROPERTY.ARRAY>"

#: Properties of a delivery, not of the indication: what the publisher put there does not go out.
_REPLACED: Final = frozenset({"indicationfiltername", "sequencecontext", "sequencenumber"})
_CORRELATED: Final = "correlatedindications"
_IDENTIFIER: Final = "indicationidentifier"
#: A name of another length is none of these: spares most names the folding.
_LENGTHS: Final = frozenset(map(len, (*_REPLACED, _CORRELATED, _IDENTIFIER)))
_STRINGS: Final = PropertyType(CIMType.STRING, is_array=True)


class ExportTemplate:
    """An indication's export message, but for what differs from delivery to delivery.

    Kept with the indication while it is in memory, hence three strings and nothing else.
    """

    __slots__ = ("_correlated", "_identifier", "_instance")

    def __init__(self, instance: CIMInstance) -> None:
        """Compile an indication. Raises ValueError for text that XML cannot carry."""
        types = instance.types
        correlated: list[str] = []
        identifier = None
        skip = set()
        for name, value in instance.values.items():
            if len(name) not in _LENGTHS:
                continue
            folded = name.casefold()
            if folded in _REPLACED:
                skip.add(name)
            elif folded == _CORRELATED and types[name] == _STRINGS:
                skip.add(name)
                append_property(correlated, name, value, types[name])
            elif folded == _IDENTIFIER and isinstance(value, str):
                identifier = value
        parts = [_CALL, open_instance(instance)]
        append_properties(parts, instance, skip=skip)
        self._instance = "".join(parts)
        #: The element of CorrelatedIndications, "" where the indication has none.
        self._correlated = "".join(correlated)
        self._identifier = identifier

    def render(
        self,
        *,
        message_id: str,
        filter_name: str | None,
        sequence_context: str | None,
        sequence_number: int | None,
        correlated: bool,
    ) -> bytes:
        """Return the body of one delivery, in UTF-8.

        None leaves a property out. ``correlated`` marks a retry: the IndicationIdentifier, or null
        where there is none, is appended to CorrelatedIndications (S0.9). Raises ValueError for text
        that XML cannot carry.
        """
        parts = [_BEGIN, escape(message_id), self._instance]
        parts.append(self._marked() if correlated else self._correlated)
        if filter_name is not None:
            parts += (_FILTER, escape(filter_name), _CLOSE)
        if sequence_context is not None:
            parts += (_CONTEXT, escape(sequence_context), _CLOSE)
        if sequence_number is not None:
            parts += (_NUMBER, str(sequence_number), _CLOSE)
        parts.append(_END)
        return "".join(parts).encode()

    def _marked(self) -> str:
        """CorrelatedIndications with the retry mark behind what was there."""
        earlier = ""
        if self._correlated.endswith(_CLOSE_ARRAY):
            start = self._correlated.index("<VALUE.ARRAY>") + len("<VALUE.ARRAY>")
            earlier = self._correlated[start : -len(_CLOSE_ARRAY)]
        return f"{_ARRAY}{earlier}{write_item(self._identifier)}{_CLOSE_ARRAY}"
