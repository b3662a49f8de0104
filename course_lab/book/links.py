"""Links of a notebook in the book: other notebooks become pages, files of the repository become pages too."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field

_HREF = re.compile(r'(?P<before><(?:a\b[^>]*?\bhref|img\b[^>]*?\bsrc)=")(?P<target>[^"]*)(?P<after>")')
_PICTURES = (".png", ".svg", ".jpg", ".gif")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)


def page_of(path: str) -> str:
    """The page that a path in the repository becomes: exercises lead to their solutions.

    "notebooks/02_rmsnorm.ipynb" is "02_rmsnorm.html", "course_kernels/rope.py" is "files/course_kernels/rope.py.html".
    A picture stays what it is.
    """
    folder, _, name = path.rpartition("/")
    if name.endswith(".ipynb") and folder in ("notebooks", "solutions", "exercises"):
        stem = name.removesuffix(".ipynb")
        return f"{stem}.html" if folder == "notebooks" else f"solutions_{stem}.html"
    return f"files/{path}" if path.endswith(_PICTURES) else f"files/{path}.html"


@dataclass
class Links:
    """Rewrites the links of one page, and remembers which files of the repository it leads to.

    folder: of the notebook or file in the repository ("notebooks").  page: that it becomes.  known: every path that
    the repository has.  files: what was linked and is no notebook of the book.  dead: links that lead nowhere.
    """

    folder: str
    page: str
    known: frozenset[str]
    files: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)

    def rewritten(self, html: str) -> str:
        """The HTML with its links led to pages."""
        return _HREF.sub(lambda found: f"{found['before']}{self._target(found['target'])}{found['after']}", html)

    def _target(self, target: str) -> str:
        if not target or _ELSEWHERE.match(target):
            return target
        path, hash_, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(self.folder, path))
        if path not in self.known:
            self.dead.add(target)
            return target
        page = page_of(path)
        if page.startswith("files/"):
            self.files.add(path)
        here = posixpath.dirname(self.page)
        return f"{posixpath.relpath(page, here or '.')}{hash_}{anchor}"
