"""The command `compgcn`, and `python -m compgcn`."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run a command; Ctrl-C ends it at once, even during an import, until the command takes over."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from compgcn.cli import main as run

    run()


if __name__ == "__main__":
    main()
