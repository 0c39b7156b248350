"""Read the files of a data set, packed or not; nothing is unpacked to disk, no folder written."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Download", "File", "Source", "wrong_file"]

_DAMAGED = (EOFError, OSError, tarfile.TarError, zlib.error)
_ODD_NUMBERS = (OverflowError, ValueError)  # in the headers of an archive


class WrongFileError(ValueError):
    """A file that is not what it should be."""


class File(NamedTuple):
    """A file that was read; ``path`` is for messages."""

    path: str
    content: bytes


@dataclass(frozen=True)
class Download:
    """A file to fetch.

    ``urls`` are its homes, tried in order. ``digest`` is the published checksum, as pooch writes
    it. Where none is published, ``contents`` is the SHA-256 of what the archive must hold, and
    ``unpacked`` how many bytes of it are unpacked at most to find out.
    """

    name: str
    urls: tuple[str, ...]
    digest: str | None = None
    contents: str | None = None
    unpacked: int | None = None


@dataclass(frozen=True)
class Source:
    """What a data set consists of.

    Parameters
    ----------
    title : str
        For messages.
    folders : tuple of str
        Below a folder of many sets, where this one may be.
    files : tuple of str
        What is read, with ``/`` for folders; each may be gzipped, or in an archive.
    downloads : tuple of Download
        Where it comes from. Archives among them may also lie in a user's folder.
    """

    title: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    downloads: tuple[Download, ...]

    def read(self, folder: Path | None) -> list[File]:
        """Read all files from a folder; without one, from the cache, after downloading."""
        if folder is None:
            from examples.data.fetch import fetch

            return self.read_from(fetch(self))
        if not folder.is_dir():
            raise FileNotFoundError(f"data: {folder} is not a folder. {self.where}")
        for place in (folder, *(folder / name for name in self.folders)):
            if any(_find(place, name) for name in self.files) or self._archive(place):
                return self.read_from(place)
        raise FileNotFoundError(f"{self.title}: nothing of it is in {folder}. {self.where}")

    def read_from(self, place: Path) -> list[File]:
        """Read all files, which are in this very folder, or in an archive in it."""
        found = [_find(place, name) for name in self.files]
        archive = self._archive(place)
        if archive and not any(found):
            return members(archive[0], self.files, archive[1].unpacked)
        missing = [name for name, path in zip(self.files, found, strict=True) if path is None]
        if missing:
            names = ", ".join(missing)
            raise FileNotFoundError(f"{self.title}: not in {place}: {names}. {self.where}")
        return [_read(path) for path in found if path]

    @property
    def where(self) -> str:
        """Say which files belong where, and where they come from."""
        names = ", ".join(download.name for download in self.downloads)
        addresses = ", ".join(download.urls[0] for download in self.downloads)
        return (
            f"Give as --data a folder that holds {names}, packed or unpacked, itself or in a "
            f"folder {self.folders[0]}. Download from {addresses}"
        )

    def _archive(self, place: Path) -> tuple[Path, Download] | None:
        packed = [(place / one.name, one) for one in self.downloads if ".tar" in one.name]
        return next(((path, one) for path, one in packed if path.is_file()), None)


def members(archive: Path, names: tuple[str, ...], most: int | None = None) -> list[File]:
    """Read these files of an archive; links and all else in it are left alone.

    Of one that may be anything, unpack at most so many bytes.
    """
    found: dict[str, File] = {}
    try:
        with tarfile.open(archive, fileobj=_unpacked(archive, most)) as tar:
            for member in tar:
                name = next((n for n in names if f"/{member.name}".endswith(f"/{n}")), None)
                # A sparse file is as large as its header says, whatever there is of it.
                plain = member.isfile() and not member.issparse()
                content = tar.extractfile(member) if name and plain else None
                if name and content:
                    found[name] = File(f"{archive}, {name}", content.read())
    except WrongFileError:
        raise
    except (*_DAMAGED, *_ODD_NUMBERS) as error:
        raise wrong_file(str(archive), "a whole tar archive", error) from error
    for name in names:
        if name not in found:
            raise wrong_file(str(archive), f"an archive with {name} in it", "none")
    return [found[name] for name in names]


def _unpacked(archive: Path, most: int | None) -> io.BytesIO | None:
    """Return an unpacked archive in memory; None if it need not be bounded."""
    if most is None:
        return None
    with gzip.open(archive) as packed:
        content = packed.read(most + 1)
    if len(content) > most:
        raise wrong_file(str(archive), f"at most {most} bytes unpacked", "more")
    return io.BytesIO(content)


def wrong_file(path: str, expected: str, found: object) -> WrongFileError:
    """Return the error for a file that is not what it should be."""
    return WrongFileError(f"{path}: expected {expected}. Found: {found}")


def _find(place: Path, name: str) -> Path | None:
    plain = place / name
    packed = plain.with_name(plain.name + ".gz")
    return next((path for path in (plain, packed) if path.is_file()), None)


def _read(path: Path) -> File:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except _DAMAGED as error:
            raise wrong_file(str(path), "a whole gzip file", error) from error
    return File(str(path), content)
