"""The CIM model, the CIM-XML export codec and the filter query languages.

Pure: no sockets, no clock.
"""


class CIMDataError(Exception):
    """The base of every error that this package raises about what it is given."""
