"""The book: formulas, links, what is folded, the search's index; the whole book once, as a slow test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lab.book import maths, pages, write_book
from course_lab.book.links import Links, page_of
from course_lab.book.writing import BookError

REPOSITORY = Path(__file__).resolve().parents[2]
MOST_BYTES = 60e6


def test_formulas_become_mathml_and_code_stays_code():
    html = pages.of_markdown(
        "Rows $x_{rc}$ and\n\n$$ y = \\frac{a}{b} $$\n\nand `$HOME $x$` and\n\n```\necho $PATH $x$\n```\n"
    )
    assert html.count("<math") == 2 and "<mfrac>" in html and 'display="block"' in html
    assert "$HOME $x$" in html and "$PATH" in html and "x_{rc}" not in re.sub(r'aria-label="[^"]*"', "", html)


def test_a_price_is_no_formula_and_a_table_keeps_its_cells():
    assert "<math" not in pages.of_markdown("It costs $5 and then $6 more, US$7.")
    html = pages.of_markdown("| a | b |\n|---|---|\n| $|x|$ | `y` |\n".replace("$|x|$", r"$\|x\|$"))
    assert html.count("<td") == 2 and "<math" in html


def test_a_formula_that_cannot_be_read_is_named():
    with pytest.raises(ValueError, match="a_"):
        maths.with_mathml("$a_$")


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("notebooks/02_rmsnorm.ipynb", "02_rmsnorm.html"),
        ("solutions/02_rmsnorm.ipynb", "solutions_02_rmsnorm.html"),
        ("exercises/02_rmsnorm.ipynb", "solutions_02_rmsnorm.html"),
        ("course_kernels/rope.py", "files/course_kernels/rope.py.html"),
        ("docs/glossary.md", "files/docs/glossary.md.html"),
    ],
)
def test_each_path_has_its_page(path, page):
    assert page_of(path) == page


def test_links_lead_to_pages_and_dead_ones_are_told():
    known = frozenset({"notebooks/03_x.ipynb", "exercises/02_y.ipynb", "course_kernels/rope.py"})
    links = Links("notebooks", "02_y.html", known)
    html = '<a href="03_x.ipynb#Glossary">a</a><a href="../exercises/02_y.ipynb">b</a><a href="#Glossary">c</a>'
    html += '<a class="k" href="https://example.org/x.ipynb">d</a>'
    html += '<a href="../course_kernels/rope.py">e</a><a href="no.md">f</a>'
    hrefs = re.findall(r'href="([^"]*)"', links.rewritten(html))
    assert hrefs[:3] == ["03_x.html#Glossary", "solutions_02_y.html", "#Glossary"]
    assert hrefs[3:5] == ["https://example.org/x.ipynb", "files/course_kernels/rope.py.html"]
    assert links.dead == {"no.md"} and links.files == {"course_kernels/rope.py"}
    back = Links("docs", "files/docs/glossary.md.html", known)
    assert 'href="../../03_x.html"' in back.rewritten('<a href="../notebooks/03_x.ipynb">x</a>')


def test_a_prediction_stays_folded_and_the_richest_output_is_shown():
    output = new_output("display_data", {"text/plain": "a picture", "text/html": "<svg id='it'></svg>"})
    open_, folded = (new_code_cell("1 + 1", outputs=[output]) for _ in range(2))
    folded.metadata.jupyter = {"outputs_hidden": True}
    stream = new_code_cell("print(2)", outputs=[new_output("stream", text="<2>\n")])
    html = pages.of_notebook(new_notebook(cells=[open_, folded, stream]))
    assert html.count("<details>") == 1 and html.count("<svg id='it'>") == 2 and "a picture" not in html
    assert html.index("<details>") > html.index("<svg id='it'>") and "&lt;2&gt;" in html


def test_code_below_a_magic_line_is_highlighted():
    html = pages.of_code("%%exercise 2.1\ndef f():\n    return 1")
    assert "%%exercise 2.1" in html and '<span class="k">def</span>' in html


def test_sections_are_words_for_the_search():
    cells = [new_markdown_cell("# 02 Norm\n\nRows & $x$\n\n## Sums\n\nadd `a < b`"), new_code_cell("tl.sum(x)")]
    found = pages.sections(pages.of_notebook(new_notebook(cells=cells)))
    assert [one.heading for one in found] == ["02 Norm", "Sums"]
    assert found[1].anchor == "Sums" and "a < b" in found[1].words and "tl.sum(x)" in found[1].words


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(BookError, match="no book"):
        write_book(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep"


@pytest.mark.slow
def test_the_whole_book(tmp_path):
    book = write_book(tmp_path / "book")
    assert book.bytes < MOST_BYTES and book.dead == ()
    again = write_book(book.folder)  # in place of the first
    assert (again.pages, again.bytes) == (book.pages, book.bytes)
    texts = {path.relative_to(book.folder).as_posix(): path.read_text() for path in book.folder.rglob("*.html")}
    for name, text in texts.items():
        body = re.sub(r"<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css|woff2?)"', body), f"{name} needs the network"
        ids = set(re.findall(r'\bid="([^"]*)"', text))
        for target in re.findall(r'<a\b[^>]*?\bhref="([^"]*)"', body):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:|//", target) or not (path or anchor):
                continue
            there = (Path(name).parent / path).as_posix() if path else name
            there = str(Path(book.folder / there).resolve().relative_to(book.folder.resolve()))
            assert there in texts, f"{name} leads to {target}"
            known = ids if not path else set(re.findall(r'\bid="([^"]*)"', texts[there]))
            assert not anchor or unquote(anchor) in known, f"{name} leads to {target}"
    index = json.loads((book.folder / "search-index.js").read_text().removeprefix("const BOOK = ").rstrip(";\n"))
    assert all(row[0] in texts for row in index) and any("identity" in row[4] for row in index)
