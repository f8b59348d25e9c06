"""A deliverer whose service and destinations name proxies."""

from pathlib import Path

from support.http_proxy import ACCOUNT, proxying
from support.resources import secret
from support.running import alerts, listener, resources, running
from support.webhooks import receiving


async def test_proxies_change_while_indications_are_delivered(tmp_path: Path) -> None:
    async with proxying() as of_service, proxying(account=True) as own, receiving() as receiver:
        # What is on this machine is not behind the service's proxy.
        url = receiver.url.replace("//localhost:", "//localhost.:")
        assert url != receiver.url

        def to(url: str = url, **spec: object) -> dict[str, object]:
            return listener("hook", url, protocol="CloudEvents", **spec)

        login = {"proxy": {"url": own.url, "secretRef": {"name": "login"}}}
        steps = (
            (to(), {"proxy": {"url": of_service.url}}),
            (to(**login), {"proxy": {"url": of_service.url}}),
            (to(proxy={}), {"proxy": {"url": of_service.url}}),
            (to(receiver.url), {"proxy": {"url": of_service.url}}),
            (to(), {}),
        )
        first = resources(steps[0][0], **steps[0][1])
        async with running(tmp_path, *first, secret("login", ACCOUNT)) as run:
            for number, (destination, settings) in enumerate(steps):
                if number:
                    documents = resources(destination, **settings)
                    await run.reload(*documents, secret("login", ACCOUNT))
                await run.publish(*alerts(2 * number, 2))
                await run.settled()
    assert len(receiver.received) == 10
    assert (len(of_service.asked), len(own.asked)) == (1, 1)


async def test_credentials_of_the_proxy_are_followed_and_pause_the_destination(
    tmp_path: Path,
) -> None:
    async with proxying(account=True) as proxy, receiving() as receiver:
        spec = {"proxy": {"url": proxy.url, "secretRef": {"name": "login"}}}
        to = resources(listener("hook", receiver.url, protocol="CloudEvents", **spec))
        wrong = secret("login", {**ACCOUNT, "password": "planted-wrong"})
        async with running(tmp_path, *to, wrong) as run:
            await run.publish(*alerts(0, 2))
            health = run.queue("hook").health
            await run.until(lambda: health.hold is not None)
            shown = (await run.get("/v1/queues/hook")).document
            assert shown["pause"]["cause"] == "refused-credentials"
            assert "HTTP 407" in shown["pause"]["message"]
            assert "planted" not in str(shown)
            await run.reload(*to, secret("login", ACCOUNT))
            await run.settled()
    assert len(receiver.received) == 2
