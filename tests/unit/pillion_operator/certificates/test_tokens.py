"""The key of deliverers' tokens is made once, kept, and never a weak one."""

import base64
from typing import Any, cast

import pytest

from pillion_operator.certificates.secret_store import TOKEN_KEY_BYTES as BYTES
from pillion_operator.certificates.secret_store import token_key
from pillion_operator.cluster.api import Api, ApiError, Conflict
from pillion_operator.names import MANAGED_BY, MANAGED_BY_LABEL
from pillion_operator.store import Key
from support.operator_fakes import FakeApi

NAMESPACE, NAME = "pillion-system", "pillion-operator"
KEY = Key("Secret", NAMESPACE, NAME)


def secret(data: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "data": data,
    }


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


async def key_of(api: FakeApi) -> bytes:
    return await token_key(cast(Api, api), namespace=NAMESPACE, name=NAME)


async def test_where_there_is_no_secret_one_is_made_with_a_key_of_its_own() -> None:
    api, other = FakeApi(), FakeApi()
    key = await key_of(api)

    assert len(key) == BYTES == 32
    assert key != await key_of(other)
    body = api.objects[KEY]
    assert body["metadata"]["labels"] == {MANAGED_BY_LABEL: MANAGED_BY}
    assert body["data"] == {"token-key": encoded(key)}


async def test_the_key_is_the_same_the_next_time_and_nothing_is_written() -> None:
    api = FakeApi()
    key = await key_of(api)
    written = len(api.writes)

    assert await key_of(api) == key
    assert len(api.writes) == written == 1


@pytest.mark.parametrize("length", [BYTES, 2 * BYTES])
async def test_a_key_that_somebody_has_put_there_is_taken(length: int) -> None:
    api = FakeApi()
    api.put(secret({"token-key": encoded(b"k" * length)}))

    assert await key_of(api) == b"k" * length
    assert api.writes == []


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        encoded(b"k" * (BYTES - 1)),
        encoded(b"k" * BYTES) + "!",
        "no base64",
    ],
    ids=["none", "empty", "short", "with more than base64", "no base64"],
)
async def test_what_is_no_key_is_replaced_and_what_else_the_secret_holds_stays(
    text: str | None,
) -> None:
    api = FakeApi()
    api.put(secret({"other": "b25l", **({} if text is None else {"token-key": text})}))
    key = await key_of(api)

    assert len(key) == BYTES
    assert api.objects[KEY]["data"] == {"other": "b25l", "token-key": encoded(key)}
    assert await key_of(api) == key


async def test_a_secret_without_data_gets_a_key() -> None:
    api = FakeApi()
    body = secret({})
    del body["data"]
    api.put(body)

    key = await key_of(api)
    assert api.objects[KEY]["data"] == {"token-key": encoded(key)}


async def test_the_key_of_a_replica_that_was_quicker_is_taken() -> None:
    api = FakeApi()

    def quicker(verb: str, _key: Key) -> ApiError | None:
        if verb == "create":
            api.put(secret({"token-key": encoded(b"q" * BYTES)}))
        return None

    api.refuse = quicker
    assert await key_of(api) == b"q" * BYTES
    assert api.writes == []


async def test_a_refusal_reaches_the_caller() -> None:
    api = FakeApi(refuse=lambda verb, _key: ApiError(403, "Forbidden", "no") if verb else None)
    with pytest.raises(ApiError) as refused:
        await key_of(api)
    assert not isinstance(refused.value, Conflict)
