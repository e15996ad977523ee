"""``rote serve``: a policy behind a websocket, for the clients of openpi."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from ..base import MisuseError, read_api_key
from ..serving import PolicyServer, Served, ServeOptions, Stopped, WireLimits, decode, served
from .output import UNABLE, check_installed, told
from .targets import Arg, Target, built

_OPTIONS, _LIMITS = ServeOptions(), WireLimits()
_MIB = 1 << 20


def serve(
    target: Target,
    arg: Arg = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; another one than this machine's needs a key.")
    ] = _OPTIONS.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 lets the system choose.")] = _OPTIONS.port,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="What clients have to present; better in ROTE_API_KEY, which ps does not show.",
        ),
    ] = None,
    graph: Annotated[
        bool | None,
        typer.Option("--graph/--no-graph", help="Whether a callable is graphed; it is by default."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where a callable gets its tensors; its first parameter's by default.")
    ] = None,
    example: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="An observation as clients send it, for the warm-up."),
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option(min=0, metavar="CALLS", help="For each example; as many as it takes by default."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds for a request, its wait included.")
    ] = _OPTIONS.timeout_s,
    drain: Annotated[
        float, typer.Option(help="Seconds to finish in when the server is to end.")
    ] = _OPTIONS.drain_s,
    max_clients: Annotated[int, typer.Option(min=1, help="Clients at once.")] = _OPTIONS.max_clients,
    max_waiting: Annotated[
        int, typer.Option(min=0, help="Requests that wait for the one that runs.")
    ] = _OPTIONS.max_waiting,
    max_message: Annotated[int, typer.Option(min=1, metavar="MIB", help="The longest message.")] = (
        _LIMITS.message_bytes // _MIB
    ),
    max_array: Annotated[int, typer.Option(min=1, metavar="MIB", help="The largest array in one.")] = (
        _LIMITS.array_bytes // _MIB
    ),
    max_values: Annotated[
        int, typer.Option(min=1, help="Numbers, texts, arrays, lists, maps and keys in one.")
    ] = _LIMITS.values,
    max_depth: Annotated[int, typer.Option(min=1, max=100, help="How deep they may lie.")] = _LIMITS.depth,
    tracebacks: Annotated[
        bool, typer.Option("--tracebacks", help="Show clients where a policy failed, not only why.")
    ] = False,
) -> None:
    """Serve a policy to clients of openpi, over a websocket.

    The target's function returns an object with infer(observation), which gets numpy arrays; or a callable,
    which gets tensors and is graphed. Ctrl-C and SIGTERM finish what was accepted, and end.

    Exit status: 0, or 2 if the policy could not be served, or something was not finished in time.
    """
    with told():
        for package in ("websockets", "msgpack"):
            check_installed(package, f"serving needs {package}: pip install 'rote[serve]'")
        limits = WireLimits(max_message * _MIB, max_array * _MIB, max_values, max_depth)
        key = api_key if api_key is not None else read_api_key()
        options = ServeOptions(
            host, port, key, max_clients, max_waiting, timeout, drain, warm_up, tracebacks, limits
        )
        examples = tuple(_example(path, limits) for path in example or ())
        policy = served(built(target, arg or ()), graphs=graph, device=device, name=target, examples=examples)
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
        how = asyncio.run(_run(policy, options, target))
    if how is not Stopped.DRAINED:
        typer.echo(f"rote: {how.value}", err=True)
        raise typer.Exit(UNABLE)


async def _run(policy: Served, options: ServeOptions, target: str) -> Stopped:
    server = PolicyServer(policy, options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    host = f"[{options.host}]" if ":" in options.host else options.host
    return await server.run(lambda port: typer.echo(f"{target} is served at ws://{host}:{port}"))


def _example(path: Path, limits: WireLimits) -> Any:
    try:
        return decode(path.read_bytes(), limits)
    except OSError as error:
        raise MisuseError(f"--example {path} cannot be read: {error.strerror}") from error
    except MisuseError as error:
        raise MisuseError(f"--example {path}: {error}") from error
