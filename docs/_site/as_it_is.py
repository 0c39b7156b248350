"""What is on the site as it stands in the project: the explorer, and folders of records."""

import shutil
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

FOLDERS = ("explorer", "benchmarks", "results")


class LinksAsTheyAre(SphinxTransform):
    """Let a link into such a folder be one: Sphinx would offer a copy of the file to download."""

    default_priority = 400

    def apply(self, **_: object) -> None:
        """Replace them."""
        for node in list(self.document.findall(addnodes.download_reference)):
            target = node["reftarget"]
            if target.lstrip("./").split("/")[0] in FOLDERS:
                node.replace_self(nodes.reference("", "", *node.children, refuri=target))


def leave_out(app: Sphinx, page: str, source: list[str]) -> None:
    """Leave the results out of the list of pages as long as there are none."""
    if page == "index" and not (Path(app.srcdir) / "results.md").exists():
        source[0] = source[0].replace("\nresults\n", "\n")


def copy(app: Sphinx, failed: Exception | None) -> None:
    """Copy the folders beside the pages."""
    for name in FOLDERS:
        if failed is None and (Path(app.srcdir) / name).exists():
            shutil.copytree(Path(app.srcdir) / name, Path(app.outdir) / name, dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Follow the pages."""
    app.add_transform(LinksAsTheyAre)
    app.connect("source-read", leave_out)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
