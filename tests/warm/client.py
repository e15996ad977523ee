"""Runs a program as the interpreter would, in a process forked from one that has imported PyTorch.

``python client.py -m MODULE ...``, ``-c CODE ...`` or ``SCRIPT ...``, behind ``-W`` or not. With other
options, or variables that Python or PyTorch reads when it starts, the interpreter itself runs. A signal that
this process gets, its end included, is that of the program. It needs the standard library alone.
"""

import json
import os
import signal
import socket
import sys

AT_START = ("PYTHON", "OMP_", "MKL_", "LD_", "TORCH_")
"""How variables begin that are read when a process starts."""

LATER = {"PYTHONPATH"}
"""Those among them that the server reads."""


def at_start(environment: dict[str, str]) -> dict[str, str]:
    """Variables that a process which has started would not read again."""
    return {key: value for key, value in environment.items() if key.startswith(AT_START) and key not in LATER}


def main(python: str, address: str, arguments: list[str]) -> None:
    """Run a program and end as it does."""
    with open(f"{address}.json", encoding="utf-8") as file:
        served = json.load(file)
    warnings: list[str] = []
    while arguments[:1] == ["-W"]:
        warnings.append(arguments[1])
        arguments = arguments[2:]
    is_option = not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-c", "-m"))
    if is_option or at_start(dict(os.environ)) != served:
        os.execv(python, [python, *(part for each in warnings for part in ("-W", each)), *arguments])
    signals = (signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # the program may run before they can be handed on
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.connect(address)
    asked = {
        "arguments": arguments,
        "warnings": warnings,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }
    text = json.dumps(asked).encode()
    socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(text)
    for number in signals:
        signal.signal(number, lambda number, frame: server.send(bytes([number])))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    status = int.from_bytes(server.recv(4), "big")
    if os.WIFSIGNALED(status):
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
