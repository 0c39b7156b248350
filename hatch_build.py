"""The README as package indexes show it, where links to files of this repository lead nowhere.

They are made to lead to the repository if ``project.urls`` in pyproject.toml has a ``Source``. As
long as it has none, they become plain words, and pictures are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_BLOCK = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)]*)\)")


class ReadmeHook(MetadataHookInterface):
    """Puts the README into the metadata of wheels and archives."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README; hatchling calls this."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_paths(text, source)}


def without_paths(text: str, source: str = "") -> str:
    """Return a page whose links need no file beside it."""

    def changed(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if source:
            return f"{picture}[{words}]({source}/{'raw' if picture else 'blob'}/main/{path})"
        return "" if picture else words

    parts = _BLOCK.split(text)  # every second one is a block of code
    parts[::2] = [_LINK.sub(changed, part) for part in parts[::2]]
    return "".join(parts)
