"""The addresses that a deliverer listens at."""

from aiohttp import web

from pillion_sidecar.settings import Address

#: Seconds that a publisher's connection is kept without a request.
KEEPALIVE_SECONDS = 75.0
#: Seconds that answers under way are given once delivery has stopped.
ANSWER_SECONDS = 2.0


class AddressTaken(Exception):
    """Nobody can listen there; the text says where and why."""


class Listeners:
    """Serves applications until it is closed."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def serve(self, app: web.Application, address: Address) -> str:
        """Listen; return the URL. Raises AddressTaken."""
        runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            auto_decompress=False,
            shutdown_timeout=ANSWER_SECONDS,
        )
        self._runners.append(runner)
        await runner.setup()
        try:
            await web.TCPSite(runner, address.host, address.port).start()
        except OSError as error:
            reason = error.strerror or error
            raise AddressTaken(f"cannot listen on {address}: {reason}") from error
        host, port = runner.addresses[0][:2]
        return f"http://{Address(host, port)}"

    async def close(self) -> None:
        """Answer what is under way, and listen no more."""
        for runner in self._runners:
            await runner.cleanup()
