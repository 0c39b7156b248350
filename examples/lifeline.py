"""Processes that end with the one that started them, however that ends: also if it is killed.

The child's standard input is a pipe whose other end only the parent holds. When the parent is gone,
the pipe is at its end, on every system.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

__all__ = ["hold", "start", "stop"]

_NAME = "QUANTAL_EXAMPLES_LIFELINE"
_GRACE = 30.0  # seconds to end in order


def start(
    command: list[str], folder: Path, environment: dict[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one; a Ctrl-C at the terminal is not for it."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment | {_NAME: "stdin"},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def hold() -> None:
    """End this process as soon as the one that called `start` is gone."""
    if os.environ.pop(_NAME, None) is None:
        return

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)  # at once: all files are written so that this does no harm

    threading.Thread(target=wait, daemon=True).start()


def stop(process: subprocess.Popen[Any]) -> None:
    """Ask a process to end, as Ctrl-C does, and see that it does."""
    if sys.platform == "win32":
        process.terminate()
    else:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
