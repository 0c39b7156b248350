"""Download a data set into the cache, once, and check it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from examples.data.files import Download, Source, members
from quantal._errors import require

__all__ = ["fetch"]

_RETRIES = 2  # at each address


def fetch(source: Source) -> Path:
    """Return the folder that holds the set's files, after downloading those that are missing.

    It is in the user's cache folder, or in the one that the environment names in ``QUANTAL_DATA``.
    A file appears there whole and checked, or not at all.
    """
    require("pooch", command="pip install -r examples/requirements.txt")
    import pooch

    root = os.environ.get("QUANTAL_DATA") or pooch.os_cache("quantal")
    folder = Path(root) / source.folders[0]
    for download in source.downloads:
        _get(source, download, folder)
    return folder


def _get(source: Source, download: Download, folder: Path) -> None:
    import pooch
    from requests.exceptions import RequestException

    there = folder / download.name
    if there.exists() and not _is_right(source, download, there):
        there.unlink()  # pooch would look at its checksum only, of which there is none
    reasons = []
    for url in download.urls:
        cache = pooch.create(
            folder,
            base_url="",
            registry={download.name: download.digest},
            urls={download.name: url},
            retry_if_failed=_RETRIES,
        )
        try:
            cache.fetch(download.name, downloader=_Downloader(source, download))
            return
        except (RequestException, ValueError) as error:
            reasons.append(f"{url}: {_reason(error)}")
    raise FileNotFoundError(
        f"{source.title}: {download.name} is not in {folder} and could not be downloaded "
        f"({'; '.join(reasons)}). {source.where}"
    )


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"status {response.status_code}"
    from requests.exceptions import RequestException

    if isinstance(error, RequestException):
        return f"out of reach, {type(error).__name__}"
    return "not the expected file, by its checksum"


class _Downloader:
    """Download to a path, as pooch asks for it, with a progress bar on a terminal."""

    def __init__(self, source: Source, download: Download) -> None:
        self.source = source
        self.download = download

    def __call__(self, url: str, path: str, cache: Any) -> None:
        import pooch
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        console = Console(stderr=True)
        columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            bar = _Bar(progress, self.download.name)
            pooch.HTTPDownloader(progressbar=bar)(url, path, cache)
        if not _is_right(self.source, self.download, Path(path)):
            raise ValueError(f"the contents of {url} have another checksum")


def _is_right(source: Source, download: Download, path: Path) -> bool:
    """Return whether an archive without a published checksum holds what it must."""
    if download.contents is None:
        return True
    digest = hashlib.sha256()
    try:
        for file in members(path, source.files, download.unpacked):
            digest.update(file.content)
    except ValueError:  # not even an archive
        return False
    return digest.hexdigest() == download.contents


class _Bar:
    """What pooch asks of a progress bar, drawn by rich."""

    def __init__(self, progress: Any, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    @property
    def total(self) -> float | None:
        """The size of the file in bytes; None or 0 if the server does not say it."""
        total: float | None = self._progress.tasks[0].total
        return total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        """Count bytes."""
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        """Count again from 0."""
        self._progress.reset(self._task, total=self.total)

    def close(self) -> None:
        """Do nothing: `Progress` ends itself."""
