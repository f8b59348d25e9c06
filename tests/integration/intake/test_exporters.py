"""A real CIM exporter that we did not write publishes through the door (D.6)."""

import asyncio
import json
from functools import partial

import pytest
import pywbem

from support.intake import Door


def pywbem_alert(identifier: str) -> pywbem.CIMInstance:
    return pywbem.CIMInstance(
        "CIM_AlertIndication",
        properties={
            "IndicationIdentifier": identifier,
            "IndicationTime": pywbem.CIMDateTime("20261121133000.000000+060"),
            "AlertType": pywbem.Uint16(6),
            "PerceivedSeverity": pywbem.Uint16(5),
            "ProbableCause": pywbem.Uint16(52),
            "Message": 'Wind: 41 < 60 & "gusty"',
            "MessageArguments": ["41", "mph"],
        },
    )


def send(connection: pywbem.WBEMConnection, identifier: str) -> None:
    connection.ExportIndication(pywbem_alert(identifier))


async def test_pywbem_publishes_through_the_door() -> None:
    async with Door().open() as door:
        connection = pywbem.WBEMConnection(door.url)
        loop = asyncio.get_running_loop()
        try:
            for number in range(3):
                await loop.run_in_executor(None, partial(send, connection, f"i{number}"))
            door.queues.full.add("siem")
            with pytest.raises(pywbem.CIMError) as failure:
                await loop.run_in_executor(None, partial(send, connection, "i3"))
            assert failure.value.status_code == pywbem.CIM_ERR_FAILED
        finally:
            await loop.run_in_executor(None, connection.close)
        assert door.queues.identifiers == ["i0", "i1", "i2"]
        properties = json.loads(door.queues.taken[0].body)["properties"]
        assert properties["Message"] == 'Wind: 41 < 60 & "gusty"'
        assert properties["MessageArguments"] == ["41", "mph"]
        assert properties["IndicationTime"] == "20261121133000.000000+060"
        assert properties["AlertType"] == 6
