"""Plugin: delivery by a program that the deliverer runs (docs/plugins.md)."""

from pillion_sidecar.protocols.declaration import Protocol, Scheme, URLForm

PROTOCOL = Protocol(
    name="Plugin",
    summary="a program that the deliverer's option --plugin declares (JSON-RPC 2.0)",
    manual="For services that no other protocol reaches. `plugin://NAME` names a program that the "
    "deliverer's option `--plugin NAME=COMMAND` declares. One process for each destination gets "
    "one JSON-RPC request for each delivery; [what is sent](../listeners.md#plug-ins) and what "
    "counts as success.",
    schemes=(Scheme("plugin", None, is_secure=False),),
    url_forms=(
        URLForm(
            regex="[^/]*//[^/?].*",
            message="names no plug-in",
            remedy="Write plugin://NAME, with two slashes before the name.",
        ),
    ),
    handler="pillion_sidecar.handlers.plugin.handler:create_handler",
    credentials=(),
    level=3,
)
