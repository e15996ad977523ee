"""One client: told the metadata, then asked and answered, one request after the other.

A request that fails is answered by a text, as openpi's server does, and the client may ask again. A message
that is malformed is answered by a text as well, and is the last one of its connection.

Closing codes: 1001 the server ends, 1003 a text where bytes belong, 1007 a malformed message, 1008 a message
in too many pieces, 1009 a message that is too long, 1011 an error of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .arrays import MessageError
from .inference import Reply
from .metrics import Metrics, RequestOutcome
from .options import ServeOptions
from .reading import decode
from .thread import OverfullError

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

ENDING, NO_BYTES, MALFORMED, PIECES = 1001, 1003, 1007, 1008
LOG = logging.getLogger("rote.serving")

_MOST_PIECES = 1_000
_MOST_TEXT = 20_000
_MOST_REASON = 100
_FAULTS = (1002, 1007, 1009)
"""Codes with which the connection itself is closed for what a client has sent."""


class _RefusalError(Exception):
    """A connection that is to be closed, and what the client is told before."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


Ask = Callable[[Any, float, float | None], Awaitable[Future[Reply]]]
"""Submits an observation, with the time it came and that of the client's last request, after the warm-up."""


class Client:
    """A connection, for as long as it lasts."""

    def __init__(
        self,
        connection: ServerConnection,
        options: ServeOptions,
        metrics: Metrics,
        ask: Ask,
        ending: asyncio.Event,
    ) -> None:
        self._connection = connection
        self._options = options
        self._metrics = metrics
        self._ask = ask
        self._ending = ending
        self._left: asyncio.Task[None] | None = None

    async def run(self, metadata: bytes) -> None:
        """Serve the client until it leaves, sends what is malformed, or the server ends."""
        from websockets.exceptions import ConnectionClosed

        self._left = asyncio.create_task(self._connection.wait_closed())
        ending = asyncio.create_task(self._ending.wait())
        try:
            await self._connection.send(metadata)
            await self._requests(ending)
        except _RefusalError as refusal:
            self._metrics.count(RequestOutcome.MALFORMED)
            LOG.warning("%s: %s", self._name, refusal.text)
            with suppress(ConnectionClosed):
                await self._say(refusal.text)
            await self._connection.close(refusal.code, refusal.text[:_MOST_REASON])
        except ConnectionClosed as closed:  # what the client waited for is dropped
            if closed.sent is not None and closed.sent.code in _FAULTS:
                self._metrics.count(RequestOutcome.MALFORMED)
                LOG.warning("%s: %s", self._name, closed)
        finally:
            ending.cancel()
            self._left.cancel()

    @property
    def _name(self) -> str:
        address: Any = self._connection.remote_address
        return f"{address[0]}:{address[1]}" if address else "a client"

    async def _requests(self, ending: asyncio.Task[Any]) -> None:
        last_s: float | None = None
        while (observation := await self._next(ending)) is not None:
            came = time.monotonic()
            await self._answer(observation, came, last_s)
            last_s = time.monotonic() - came
        await self._connection.close(ENDING, "the server ends")

    async def _next(self, ending: asyncio.Task[Any]) -> dict[Any, Any] | None:
        """The next observation; None if the server ends. The message itself is not kept."""
        message = asyncio.create_task(self._message())
        try:
            await asyncio.wait({message, ending}, return_when=asyncio.FIRST_COMPLETED)
            return None if ending.done() else self._observation(await message)
        finally:
            _drop(message)

    async def _message(self) -> bytes | str:
        """The next message. The limit on its size does not hold for pieces without a byte in them."""
        pieces: list[Any] = []
        async for piece in self._connection.recv_streaming():
            pieces.append(piece)
            if len(pieces) > _MOST_PIECES:
                raise _RefusalError(PIECES, f"a message came in more than {_MOST_PIECES:,} pieces")
        return pieces[0] if len(pieces) == 1 else type(pieces[0])().join(pieces)

    def _observation(self, message: bytes | str) -> dict[Any, Any]:
        if isinstance(message, str):
            raise _RefusalError(NO_BYTES, "a request is bytes, and a text came")
        try:
            observation = decode(message, self._options.limits)
        except MessageError as error:
            raise _RefusalError(MALFORMED, str(error)) from error
        if not isinstance(observation, dict):
            raise _RefusalError(MALFORMED, f"a request is a map, and a {type(observation).__name__} came")
        return observation

    async def _answer(self, observation: dict[Any, Any], came: float, last_s: float | None) -> None:
        """Have an observation inferred, and send what comes of it."""
        try:
            asked = await self._ask(observation, came, last_s)
        except OverfullError as error:
            self._metrics.count(RequestOutcome.REFUSED)
            await self._say(str(error))
            return
        except Exception as error:  # of the warm-up
            await self._failed(error)
            return
        reply = await self._reply(asked)
        if reply is not None:
            self._metrics.count(RequestOutcome.ANSWERED)
            self._metrics.waits.add(reply.waited_s)
            self._metrics.inferences.add(reply.infer_s)
            await self._connection.send(reply.message)

    async def _reply(self, asked: Future[Reply]) -> Reply | None:
        """What the policy says; None if it failed, took too long, or nobody waits for it any more."""
        assert self._left is not None
        answer = asyncio.wrap_future(asked)
        limit = self._options.timeout_s
        try:
            await asyncio.wait({answer, self._left}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
        except Exception as error:
            await self._failed(error)
            return None
        finally:
            asked.cancel()  # what has not begun is never made
            answer.cancel()  # a result that comes later is dropped
        if self._left.done():
            self._metrics.count(RequestOutcome.LEFT)
            return None
        self._metrics.count(RequestOutcome.TIMED_OUT)
        LOG.warning("%s: no answer within %s s", self._name, limit)
        await self._say(f"there was no answer within {limit:g} s; one that comes later is dropped")
        return None

    async def _failed(self, error: Exception) -> None:
        self._metrics.count(RequestOutcome.FAILED)
        LOG.error("%s: the policy failed", self._name, exc_info=error)
        await self._say(_told(error, self._options.tracebacks))

    async def _say(self, text: str) -> None:
        await self._connection.send(text[:_MOST_TEXT])


def _drop(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and take note of the error of one that has ended with one."""
    if not task.cancel() and not task.cancelled():
        task.exception()


def _told(error: BaseException, tracebacks: bool) -> str:
    if tracebacks:
        return "".join(traceback.format_exception(error))[-_MOST_TEXT:]
    return f"{type(error).__name__}: {error}"
