"""The book: all lessons and solutions as static HTML, to be read from a folder without a server.

    python -m course_lab.book build/book

- `writing`  the whole book into a folder
- `pages`    a notebook as one page, with `maths` (LaTeX as MathML) and `links` (between notebooks: between pages)
- `static/`  style, theme and search; the browser needs nothing else
"""

from course_lab.book.writing import write_book

__all__ = ["write_book"]
