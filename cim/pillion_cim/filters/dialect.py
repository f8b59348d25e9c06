"""The two query languages, and in what they differ."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a query language has beyond the common ground.

    Common to both: AND, OR, NOT, parentheses, the six comparisons, IS [NOT] NULL, TRUE and FALSE,
    [NOT] LIKE, ISA, and dotted access into embedded instances.
    """

    name: str
    #: The characters that may stand around a string.
    quotes: str
    #: Whether a backslash escapes a quote or a backslash inside a string.
    escapes: bool
    #: Class::Property, alias, [index], ANY, EVERY, functions and hexadecimal numbers.
    extended: bool


#: OpenPegasus's WQL, with strings in either kind of quote, LIKE, ISA and dotted names added.
WQL = Dialect(name="WQL", quotes="\"'", escapes=False, extended=False)
#: The useful part of DMTF:CQL (DSP0202).
CQL = Dialect(name="DMTF:CQL", quotes="'", escapes=True, extended=True)


def find_dialect(language: str) -> Dialect | None:
    """The dialect that a QueryLanguage names, without regard to case; None for any other."""
    return {"wql": WQL, "dmtf:cql": CQL, "cim:cql": CQL}.get(language.lower())
