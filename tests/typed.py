"""Commands as a user types them, without the seconds that each would spend importing torch.

With the path of a socket as its only argument, this script imports the package once and forks for every command that
arrives there. With more arguments it sends them there, with its standard streams and folder, and returns the exit code.
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

LONG = (
    *("compgcn.run.report", "compgcn.serve.app", "compgcn.run.tune", "reproduction.__main__", "compgcn.kernels.numba"),
    *("torch._dynamo", "pandas", "matplotlib.pyplot"),
)


def serve(path: str) -> None:
    for module in LONG:
        importlib.import_module(module)
    stable_order = importlib.import_module("compgcn.kernels.numba").stable_order
    tensor = importlib.import_module("torch").tensor
    stable_order(tensor([0]), tensor([0, 1]))  # the first call of a kernel loads the rest of numba
    gc.freeze()  # exclude all imported objects from garbage collection
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes commands that end
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


def _obey(connection: socket.socket, asked: dict[str, object], streams: list[int]) -> None:
    program, *words = map(str, asked["arguments"])  # type: ignore[call-overload]
    main = importlib.import_module({"compgcn": "compgcn.cli", "reproduction": "reproduction.__main__"}[program]).main
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))  # noqa: SIM115
    os.chdir(str(asked["folder"]))
    sys.argv = [program, *words]
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
