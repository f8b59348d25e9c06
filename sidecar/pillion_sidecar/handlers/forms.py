"""Forms of an indication, with all properties or those that a filter lists. Deliveries with the
same properties share one, which ``Indication.rendered`` keeps."""

from collections.abc import Callable
from typing import TypeVar, cast

from pillion_sidecar.indication import FormKey, Indication, Selection
from pillion_sidecar.selection import selected_body

#: Such forms that one indication keeps. Beyond it the oldest is dropped, and made again for its
#: next delivery.
MOST_LISTED = 8
_Form = TypeVar("_Form")


def kept_form(
    indication: Indication, name: str, selection: Selection | None, make: Callable[[bytes], _Form]
) -> _Form:
    """Return the form ``name``; ``make`` gets the body with the listed properties. ``selection``
    None: all. Raises ValueError if the body is not the JSON form of an instance, and what ``make``
    raises."""
    rendered = indication.rendered
    if rendered is None:
        rendered = indication.rendered = {}
    key: FormKey = name if selection is None else (name, selection)
    kept = rendered.get(key)
    if kept is not None:
        return cast("_Form", kept)
    if selection is None:
        form = rendered[key] = make(indication.body)
        return form
    form = rendered[key] = make(selected_body(indication.body, selection))
    listed = [one for one in rendered if isinstance(one, tuple)]
    if len(listed) > MOST_LISTED:
        del rendered[listed[0]]
    return form
