"""Files that appear whole or not at all, in folders that others may write to as well."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

__all__ = [
    "append",
    "checksums",
    "open_to_append",
    "parsed",
    "refuse_links",
    "remove",
    "write_whole",
]

# Where there is no such flag (Windows), `refuse_links` has looked before.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it is there whole or not at all, also if this process is killed."""
    half = path.with_name(path.name + ".half")
    half.unlink(missing_ok=True)  # the rest of a write that was killed, or a link
    with half.open("xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    half.replace(path)


def parsed(text: bytes) -> Any:
    """Return what JSON says; a ValueError tells of whatever is wrong with it."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def append(path: Path, line: str, *, wait: bool = True) -> None:
    """Add a line to a file, and wait until it is on the disk."""
    with open_to_append(path) as file:
        file.write(line.encode() + b"\n")
        file.flush()
        if wait:
            os.fsync(file.fileno())


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file to write at its end; a link is refused."""
    return open(path, "ab", opener=_opener)


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def refuse_links(folder: Path, below: Path) -> None:
    """Fail if a folder, or one between it and another, or what lies in it is a symbolic link."""
    between = [part for part in (folder, *folder.parents) if below in part.parents]
    inside = folder.iterdir() if folder.is_dir() else ()
    for path in (*between, *inside):
        if path.is_symlink():
            raise ValueError(
                f"{path} is a symbolic link: nothing is written through one below --out"
            )


def checksums(path: Path, name: str) -> str:
    """Return the SHA-256 of a file, or of each in a folder, under a name, as ``sha256sum`` does."""
    if path.is_file():
        return f"{_digest(path)}  {name}\n"
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = [f"{_digest(file)}  {name}/{file.relative_to(path).as_posix()}\n" for file in files]
    return "".join(lines)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_LINK, 0o666)
