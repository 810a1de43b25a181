"""What the package's metadata says that depends on where the repository is.

A README links to files beside it. A package index shows it without them, so there the links must be
absolute: to the files as they were when this version was released.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# ](target) and src="target", where the target is neither an address nor within the page.
_LINK = re.compile(r"""(\]\(|\b(?:src|href)=")(?!\w+:|#)([^)"\s]+)""")
_PICTURES = (".gif", ".jpg", ".png", ".svg")


def absolute_links(markdown: str, repository: str, tag: str) -> str:
    """Make a page's links to files of the repository absolute.

    Args:
        markdown: a page that lies in the repository's root.
        repository: its address.
        tag: which version of the files is meant.
    """

    def absolute(link: re.Match[str]) -> str:
        opening, target = link.groups()
        kind = "raw" if target.endswith(_PICTURES) else "blob"  # a picture, not a page about it
        return f"{opening}{repository}/{kind}/{tag}/{target}"

    return _LINK.sub(absolute, markdown)


class LinksHook(MetadataHookInterface):
    """Give the metadata its readme and its links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling when it builds or installs."""
        repository = self.config["repository"]
        tag = f"v{metadata['version']}"
        page = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(page, repository, tag),
        }
        metadata["urls"] = {
            "Homepage": repository,
            "Documentation": f"{repository}/tree/{tag}/docs",
            "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
            "Source": repository,
        }
