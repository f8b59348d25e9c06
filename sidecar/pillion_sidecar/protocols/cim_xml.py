"""CIM-XML: export messages over HTTP (DSP0200)."""

from pillion_sidecar.protocols.declaration import HTTP_CREDENTIALS, Protocol, http_schemes

PROTOCOL = Protocol(
    name="CIM-XML",
    summary="export messages (DSP0200)",
    manual="For WBEM listeners such as OpenPegasus's and pywbem's. One `POST` for each delivery "
    "carries one `ExportIndication` request; "
    "[what is sent](../listeners.md#cim-xml-requests) and what counts as success.",
    # As in OpenPegasus, registered for WBEM over HTTP and HTTPS.
    schemes=http_schemes(port=5988, tls_port=5989),
    credentials=HTTP_CREDENTIALS,
    takes_proxy=True,
    handler="pillion_sidecar.handlers.cimxml:create_handler",
)
