"""Commands as they would be typed, without the seconds that each would spend importing torch.

Run as a script with the path of a socket, it imports the package once and forks for every command that is sent there;
with more arguments it sends them, with its own standard streams, folder and environment, and ends as they end.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback

_LIMIT = 2**20

# What takes long to import, and what commands would import sooner or later: the kernels, what torch loads with the
# first optimiser, what pyarrow makes strings and tables with, and what draws.
LONG = (
    *("compgcn.run.report", "compgcn.serve.app", "compgcn.run.tune", "reproduction.bench", "compgcn.kernels.numba"),
    *("torch._dynamo", "pandas", "matplotlib.pyplot"),
)


def serve(path: str) -> None:
    for module in LONG:
        importlib.import_module(module)
    _wake_the_compiler()
    gc.freeze()  # what is imported stays, and no command looks through it for garbage

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that end
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        os.write(1, b"ready\n")
        while True:
            connection, _ = listener.accept()
            message, streams, *_ = socket.recv_fds(connection, _LIMIT, 3)
            if os.fork() == 0:
                listener.close()
                _obey(connection, json.loads(message), streams)
            for descriptor in (connection.detach(), *streams):
                os.close(descriptor)


def _wake_the_compiler() -> None:
    """By a call of a kernel, with which numba loads its other half."""
    import torch

    from compgcn.kernels.numba import stable_order

    stable_order(torch.tensor([0]), torch.tensor([0, 1]))


def _obey(connection: socket.socket, asked: dict[str, object], streams: list[int]) -> None:
    from compgcn.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))  # noqa: SIM115
    os.chdir(str(asked["folder"]))
    sys.argv = ["compgcn", *map(str, asked["arguments"])]  # type: ignore[call-overload]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(bytes([code]))
        os._exit(code)


def ask(path: str, arguments: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        message = json.dumps({"folder": os.getcwd(), "arguments": arguments}).encode()
        socket.send_fds(connection, [message], [0, 1, 2])
        return (connection.recv(1) or b"\xff")[0]


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    sys.exit(ask(sys.argv[1], sys.argv[2:]))
