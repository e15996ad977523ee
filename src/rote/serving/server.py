"""The server: its port, who may come in, what it says over HTTP, and how it ends.

Everything runs on one event loop but the policy, which has a thread of its own. The port is opened when the
warm-up is over. Web pages do not come in: a browser says from where a page is, and no client of a policy
does.

What does not work:

- A queue per client. One that asks twice before it is answered would be served before others; the requests of
  a client wait in its connection, which stops being read.
- A limit on connections that have not said anything yet. They cost a descriptor each, for ten seconds.
"""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from ..api import Report
from ..base import EnvironmentError_
from .connection import ENDING, LOG, Client
from .inference import Reply, inference
from .metrics import CONTENT_TYPE, Metrics
from .options import ServeOptions, is_let_in
from .policy import Served
from .reading import NO_SERVE
from .thread import InferenceThread, OverfullError
from .warming import warm_up
from .writing import encode

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response

_REPORT_S = 1.0
"""How long a page of metrics waits for a report of the graphed callable."""

_LAST_S = 1.0
"""How long a client that is told that its connection is closed has for its last word."""


class Stopped(Enum):
    """How a server ended."""

    DRAINED = "everything that was accepted has been answered"
    CUT_OFF = "something that was accepted has not been answered in time"


class PolicyServer:
    """Serves one policy, once."""

    def __init__(self, served: Served, options: ServeOptions) -> None:
        self.metrics = Metrics()
        self._served = served
        self._options = options
        self._metadata = encode(dict(served.metadata), "metadata")
        self._thread = InferenceThread(options.max_waiting)
        self._connections: set[ServerConnection] = set()
        self._ending = asyncio.Event()
        self._hurry = asyncio.Event()
        self._warming = asyncio.Lock()
        self._warm = options.warm_up == 0
        self._reports: Future[Report] | None = None
        self._report: Report | None = None

    async def run(self, opened: Callable[[int], None]) -> Stopped:
        """Warm up, open the port, serve until :meth:`stop`, and finish what was accepted.

        Args:
            opened: Called with the port once it is open.

        Raises:
            EnvironmentError_: The port cannot be opened, or a package is missing.
            MisuseError: A result of the policy cannot be sent.
            Exception: Whatever the policy raises in the warm-up.
        """
        try:
            from websockets.asyncio.server import serve
        except ModuleNotFoundError as error:
            raise EnvironmentError_(NO_SERVE) from error
        try:
            if self._served.examples and not await self._warmed_up():
                return await self._stopped(Stopped.DRAINED)
            return await self._serve(serve, opened)
        finally:
            self._thread.stop(0.0)

    async def _serve(self, serve: Callable[..., Any], opened: Callable[[int], None]) -> Stopped:
        options = self._options
        silent = logging.Logger("websockets", logging.CRITICAL + 1)  # or each port scan is a traceback
        try:
            server: Server = await serve(
                self._client, options.host, options.port,
                origins=[None], compression=None, process_request=self._http, max_queue=1, logger=silent,
                max_size=options.limits.message_bytes, close_timeout=_LAST_S,
            )  # fmt: skip
        except OSError as error:
            raise EnvironmentError_(
                f"{options.host}:{options.port} cannot be opened: {error.strerror}"
            ) from error
        opened(server.sockets[0].getsockname()[1])
        await self._ending.wait()
        LOG.info("ending; %d clients are connected", len(self._clients()))
        server.close(close_connections=False)
        return await self._stopped(await self._drained(server))

    def stop(self) -> None:
        """End: take nothing more, and finish what was accepted; asked again, do not wait for that either."""
        if self._ending.is_set():
            self._hurry.set()
        self._ending.set()

    async def _warmed_up(self) -> bool:
        """Warm up with the examples; whether the server is to go on."""
        work = asyncio.wrap_future(self._submit_warm_up(self._served.examples))
        await self._unless_hurried(work)
        if not work.done():
            return False
        self._take(work.result())
        return not self._ending.is_set()

    def _submit_warm_up(self, observations: tuple[Any, ...]) -> Future[Served]:
        calls, ended = self._options.warm_up, self._ending.is_set
        return self._thread.submit(partial(warm_up, self._served, observations, calls, ended), bounded=False)

    def _take(self, warm: Served) -> None:
        """Serve what the warm-up has made of the policy."""
        graphed = self._served.graphed
        if graphed is not None and warm.graphed is None:
            LOG.warning("nothing was replayed, so the policy is called plainly\n%s", graphed.explain())
        elif graphed is not None:
            LOG.info("warm\n%s", graphed.explain())
        self._served = warm
        self._warm = True

    async def _ask(self, observation: Any, came: float, last_s: float | None) -> Future[Reply]:
        """Submit an observation; without an example, the first one warms the policy up."""
        if not self._warm:
            await self._warm_up_with(observation)
        return self._thread.submit(partial(inference, lambda: self._served, observation, came, last_s))

    async def _warm_up_with(self, observation: Any) -> None:
        """Warm up with the observation of a client; where that fails, the next client's is tried."""
        try:
            await asyncio.wait_for(self._warming.acquire(), self._options.timeout_s)
        except TimeoutError as error:
            raise OverfullError(
                "the server is busy: it warms up for another client; try again later"
            ) from error
        try:
            if not self._warm:
                self._take(await asyncio.wrap_future(self._submit_warm_up((observation,))))
        finally:
            self._warming.release()

    async def _client(self, connection: ServerConnection) -> None:
        reset = self._served.reset
        # with more, it would take their state from others
        if self._options.max_clients == 1 and reset is not None:
            await asyncio.wrap_future(self._thread.submit(reset, bounded=False))
        await Client(connection, self._options, self.metrics, self._ask, self._ending).run(self._metadata)

    async def _drained(self, server: Server) -> Stopped:
        """Wait until the clients have their answers and are gone; the rest is cut off."""
        closed = asyncio.create_task(server.wait_closed())
        await self._unless_hurried(closed, self._options.drain_s)
        if closed.done():
            return Stopped.DRAINED
        for closing in [
            asyncio.create_task(each.close(ENDING, "the server ends")) for each in self._clients()
        ]:
            await closing
        await asyncio.wait({closed}, timeout=2 * _LAST_S)
        closed.cancel()
        return Stopped.CUT_OFF

    async def _unless_hurried(self, work: asyncio.Future[Any], limit_s: float | None = None) -> None:
        """Wait for something, until the time is up or nothing is to be waited for any more."""
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({work, hurry}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()

    async def _stopped(self, how: Stopped) -> Stopped:
        """End the thread; a call that hangs is left to itself."""
        limit = 0.0 if self._hurry.is_set() or how is Stopped.CUT_OFF else self._options.drain_s
        await asyncio.to_thread(self._thread.stop, limit)
        return how

    # --- HTTP --------------------------------------------------------------------------------------------

    async def _http(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request over HTTP; None lets a client in."""
        path = request.path.partition("?")[0]
        if path == "/healthz":
            return self._health(connection)
        if not is_let_in(request.headers.get_all("Authorization"), self._options.api_key):
            text = "Authorization: Api-Key KEY is needed, once, with the key of the server.\n"
            return _with(
                connection.respond(http.HTTPStatus.UNAUTHORIZED, text), "WWW-Authenticate", "Api-Key"
            )
        if path == "/metrics":
            text = self.metrics.text(self._gauges(), await self._graph_report())
            return _with(connection.respond(http.HTTPStatus.OK, text), "Content-Type", CONTENT_TYPE)
        if len(self._clients()) >= self._options.max_clients:
            text = (
                f"{self._options.max_clients} clients are connected, and no more may be. Try again later.\n"
            )
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, text)
        self._connections.add(connection)
        return None

    def _health(self, connection: ServerConnection) -> Response:
        busy_s = self._thread.busy_s
        if busy_s <= self._options.timeout_s or self._warming.locked():
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        text = f"an inference has been running for {busy_s:.0f} s\n"
        return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, text)

    def _gauges(self) -> dict[str, float]:
        return {
            "clients": len(self._clients()),
            "waiting": self._thread.waiting,
            "busy_seconds": self._thread.busy_s,
        }

    def _clients(self) -> set[ServerConnection]:
        """The connections that were let in and still are."""
        self._connections = {each for each in self._connections if each.state.name != "CLOSED"}
        return self._connections

    async def _graph_report(self) -> Report | None:
        """What the graphed callable counts; an older report while an inference takes long."""
        graphed = self._served.graphed
        if graphed is None:
            return None
        if self._reports is None or self._reports.done():
            # it waits for calls of other threads
            self._reports = self._thread.submit(graphed.report, bounded=False)
        report = asyncio.wrap_future(self._reports)
        await asyncio.wait({report}, timeout=_REPORT_S)
        if report.done():
            self._report = report.result()
        return self._report


def _with(response: Response, header: str, value: str) -> Response:
    """A response with a header, in the place of one of that name."""
    if header in response.headers:
        del response.headers[header]
    response.headers[header] = value
    return response
