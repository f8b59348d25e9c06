"""Write a plug-in of Pillion: a program that delivers indications (docs/plugins.md).

::

    from pillion_plugin import Delivery, run

    def deliver(delivery: Delivery) -> None:
        print(delivery.class_name, delivery.properties)

    run(deliver, name="example")

``deliver`` returns after a success. :class:`Refused` says that a further attempt is of no use;
:class:`Retry` and any other exception say that the attempt failed.
"""

from pillion_plugin.delivery import Delivery, Refused, Retry
from pillion_plugin.serving import run

__all__ = ["Delivery", "Refused", "Retry", "run"]
