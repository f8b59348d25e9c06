"""File: lines of JSON in a rolling file of the delivery folder."""

from pillion_sidecar.fields import Integer, declared, resource
from pillion_sidecar.protocols.declaration import Protocol, Scheme, URLForm

_WORD = "[A-Za-z0-9_-]*"
#: No first dot or dash; a last part that is a number is a rolled file's.
NAME = rf"[A-Za-z0-9_]{_WORD}((\.{_WORD})*\.[0-9]*[A-Za-z_-]{_WORD})?"
_MEBIBYTE = 1024 * 1024


@resource
class FileOptions:
    max_bytes: int = declared(
        default=64 * _MEBIBYTE,
        type=Integer(minimum=1024, maximum=1024 * 1024 * _MEBIBYTE),
        description="Maximum bytes of a file. A line that does not fit begins a new file; the "
        "old one is renamed to NAME.1, NAME.1 to NAME.2, and so on. A line that is longer than "
        "this has a file of its own.",
    )
    max_files: int = declared(
        default=5,
        type=Integer(minimum=1, maximum=1000),
        description="Maximum number of renamed files, besides the one that is written. Older ones "
        "are deleted.",
    )


PROTOCOL = Protocol(
    name="File",
    summary="one line of JSON in a rolling file",
    manual="For log shippers and for archives. Each delivery appends one line to `NAME` in the "
    "folder of `--delivery-folder`, and no destination can name a file elsewhere; "
    "[what is written](../listeners.md#files) and what counts as success.",
    schemes=(Scheme("file", None, is_secure=False),),
    handler="pillion_sidecar.handlers.file:create_handler",
    url_forms=(
        URLForm(
            regex=f"(?i:file):///{NAME}",
            message="names no file that Pillion writes",
            remedy="Write file:///NAME: letters, digits, '.', '_' and '-', no folder, no '.' or "
            "'-' at its start, and no number after its last '.'.",
        ),
        URLForm(
            regex="[^/]*//([^/].*|/.{0,200})",
            message="names a file with more than 200 characters",
            remedy="Write a shorter name.",
        ),
    ),
    credentials=(),
    level=3,
    options=FileOptions,
    most_at_once=100,
)
