"""Write the book: a page for each notebook and for each file that is linked, a first page, the index of search."""

from __future__ import annotations

import json
import posixpath
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from course_lab.authoring import lessons
from course_lab.authoring.build import glossary
from course_lab.authoring.build.repository_pages import ROOT, lesson_table
from course_lab.authoring.notebooks import read_notebook
from course_lab.book import pages
from course_lab.book.links import Links, page_of
from course_lab.book.pages import Page

_STATIC = Path(__file__).parent / "static"
_TITLE = "Write Triton kernels for AMD GPUs"
_MARK = "book.css"  # by which a folder is known to hold a book
_WELCOME = """\
# {title}

All lessons and solutions of the course, to be read. The cells do not run here, and nothing is graded: for that, set the
course up and open it in JupyterLab.

{lessons}
"""


class BookError(Exception):
    """A book that cannot be written; the message names the place and the fix."""


@dataclass(frozen=True)
class Book:
    """What was written: the folder, how many pages, bytes in all, and links that lead nowhere."""

    folder: Path
    pages: int
    bytes: int
    dead: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.pages} pages, {self.bytes / 1e6:.1f} MB: open {self.folder / 'index.html'}"]
        return "\n".join([*lines, *(f"leads nowhere: {link}" for link in self.dead)])


def write_book(folder: Path, root: Path = ROOT) -> Book:
    """Write the book of the notebooks below `root` into `folder`, in place of a book that is there.

    Raises:
        BookError: the folder holds something else; a notebook is not built; a formula cannot be read.
    """
    _clear(folder)
    known = _paths(root)
    written, files, dead = [], set(), set()
    for path in _notebooks(root):
        page, links = _linked(_notebook_page(root, path), posixpath.dirname(path), known)
        written.append(page)
        files |= links.files
        dead |= {f"{path}: {target}" for target in links.dead}
    first, links = _linked(_first_page(root), "", known)
    written.insert(0, first)
    files |= links.files | ({glossary.PAGE} & known)
    written += _file_pages(root, folder, files, known)
    for page in written:
        _write(folder / page.path, _whole(page, written))
    _write(folder / "search-index.js", f"const BOOK = {json.dumps(_index(written), separators=(',', ':'))};\n")
    for file in sorted(_STATIC.iterdir()):
        shutil.copyfile(file, folder / file.name)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Book(folder, len(written), size, tuple(sorted(dead)))


def _clear(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise BookError(f"{folder} holds something that is no book: name another folder, or empty it.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _paths(root: Path) -> frozenset[str]:
    """What notebooks may link to: files and folders of the repository, without what is hidden or built."""
    tops = [path for path in root.iterdir() if path.name not in ("build", "work") and not path.name.startswith(".")]
    below = [
        path for top in tops for path in (top.rglob("*") if top.is_dir() else ()) if "__pycache__" not in path.parts
    ]
    return frozenset(path.relative_to(root).as_posix() for path in (*tops, *below))


def _notebooks(root: Path) -> list[str]:
    """Lessons and solutions, in the order of the course."""
    here = [lesson for lesson in lessons.all() if lesson.is_built_in(root)]
    found = [lesson.notebook("notebooks") for lesson in here]
    found += [lesson.notebook("solutions") for lesson in here if lesson.exercises]
    if missing := [path.name for path in found if not path.exists()]:
        raise BookError(f"{missing[0]} is not built: run `make lessons` first.")
    return [path.relative_to(root).as_posix() for path in found]


def _notebook_page(root: Path, path: str) -> Page:
    notebook = read_notebook(root / path)
    try:
        body = pages.of_notebook(notebook)
    except ValueError as error:
        raise BookError(f"{path}: {error}") from error
    title = next((one.heading for one in pages.sections(body)), path)
    return Page(page_of(path), title.replace("Exercises", "Solutions", 1), body)


def _file_pages(root: Path, folder: Path, files: set[str], known: frozenset[str]) -> list[Page]:
    """A page for each of these files and for each file that one of them leads to; pictures are copied."""
    left, written = sorted(files), {}
    while left:
        path = left.pop(0)
        if not page_of(path).endswith(".html"):
            _copy(root / path, folder / page_of(path))
        elif path not in written:
            written[path], links = _linked(_file_page(root, path), posixpath.dirname(path), known)
            left += sorted(links.files - written.keys())
    return [written[path] for path in sorted(written)]


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)


def _file_page(root: Path, path: str) -> Page:
    """A file or folder of the repository that a page leads to."""
    file = root / path
    if file.is_dir():
        inside = sorted(child.name for child in file.iterdir() if not child.name.startswith((".", "_")))
        body = pages.heading(path) + pages.of_markdown("\n".join(f"- `{name}`" for name in inside))
    elif file.suffix == ".md":
        body = pages.with_repository_anchors(pages.of_markdown(file.read_text(encoding="utf-8")))
    else:
        body = pages.heading(path) + pages.of_code(file.read_text(encoding="utf-8"), "python")
    return Page(page_of(path), "Glossary" if path == glossary.PAGE else path, body)


def _first_page(root: Path) -> Page:
    here = [lesson for lesson in lessons.all() if lesson.is_built_in(root)]
    body = pages.of_markdown(_WELCOME.format(title=_TITLE, lessons=lesson_table(here)))
    return Page("index.html", _TITLE, body)


def _linked(page: Page, folder: str, known: frozenset[str]) -> tuple[Page, Links]:
    links = Links(folder, page.path, known)
    body = links.rewritten(page.body)
    return replace(page, body=body, sections=pages.sections(body)), links


def _index(written: Iterable[Page]) -> list[list[str]]:
    """For each section: page, its title, anchor, heading, words."""
    return [
        [page.path, page.title, section.anchor, section.heading, section.words]
        for page in written
        for section in page.sections
    ]


# ---- the frame around a page ---------------------------------------------------------------------------------------

_FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{up}book.css">
<script src="{up}theme.js"></script>
</head>
<body data-up="{up}">
<a class="skip" href="#page">To the text</a>
<header>
<button id="menu" aria-label="Contents" aria-expanded="false" aria-controls="contents">☰</button>
<a class="name" href="{up}index.html">{name}</a>
<input id="search" type="search" placeholder="Search" aria-label="Search the book">
<button id="theme" aria-label="Light or dark">◐</button>
</header>
<div id="found" role="region" aria-label="Found" aria-live="polite" hidden></div>
<nav id="contents" aria-label="Contents">{contents}</nav>
<main id="page">
{body}
<footer>{neighbours}</footer>
</main>
<script src="{up}search-index.js"></script>
<script src="{up}book.js"></script>
</body>
</html>
"""


def _whole(page: Page, written: list[Page]) -> str:
    up = "../" * page.path.count("/")
    return _FRAME.format(
        title=escape(page.title if page.title == _TITLE else f"{page.title} - {_TITLE}"),
        name=escape(_TITLE),
        up=up,
        contents=_contents(page, written, up),
        body=page.body,
        neighbours=_neighbours(page, written, up),
    )


def _contents(page: Page, written: list[Page], up: str) -> str:
    lists = (
        ("Lessons", [one for one in written if one.path[:1].isdigit()]),
        ("Solutions", [one for one in written if one.path.startswith("solutions_")]),
        ("Appendix", [one for one in written if one.path == page_of(glossary.PAGE)]),
    )
    return "".join(f"<h2>{name}</h2><ul>{_items(page, of, up)}</ul>" for name, of in lists if of)


def _items(page: Page, of: list[Page], up: str) -> str:
    items = []
    for one in of:
        current = ' aria-current="page"' if one is page or one.path == page.path else ""
        inner = _headings(one) if current else ""
        items.append(f'<li><a href="{up}{one.path}"{current}>{escape(one.title)}</a>{inner}</li>')
    return "".join(items)


def _headings(page: Page) -> str:
    rows = [f'<li><a href="#{one.anchor}">{escape(one.heading)}</a></li>' for one in page.sections[1:]]
    return f"<ul>{''.join(rows)}</ul>" if rows else ""


def _neighbours(page: Page, written: list[Page], up: str) -> str:
    order = [one for one in written if not one.path.startswith("files/")]
    at = next((i for i, one in enumerate(order) if one.path == page.path), None)
    if at is None:
        return ""
    before, after = order[at - 1 : at] if at else [], order[at + 1 : at + 2]
    links = [f'<a rel="prev" href="{up}{one.path}">← {escape(one.title)}</a>' for one in before]
    links += [f'<a rel="next" href="{up}{one.path}">{escape(one.title)} →</a>' for one in after]
    return " ".join(links)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
