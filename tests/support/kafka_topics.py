"""Topics of a real Kafka."""

import asyncio
import contextlib

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

#: Seconds between two looks.
_LOOK = 0.1


async def create_topic(port: int, name: str, *, partitions: int = 1, **settings: str) -> str:
    """Create a topic, as soon as the node answers, and wait for its leaders. ``settings``: with
    ``_`` for a dot."""
    configured = {one.replace("_", "."): value for one, value in settings.items()}
    topic = NewTopic(name, partitions, 1, topic_configs=configured)
    while True:
        admin = AIOKafkaAdminClient(bootstrap_servers=f"localhost:{port}")
        try:
            await admin.start()
            with contextlib.suppress(TopicAlreadyExistsError):
                await admin.create_topics([topic])
            (described,) = await admin.describe_topics([name])
            led = [one["leader"] for one in described["partitions"]]
            if not described["error_code"] and len(led) == partitions and min(led) >= 0:
                return name
        except KafkaError:
            pass
        finally:
            await admin.close()
        await asyncio.sleep(_LOOK)
