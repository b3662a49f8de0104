"""`python -m course_lab.book FOLDER`."""

import sys
from pathlib import Path

from course_lab.book import write_book

if len(sys.argv) != 2:
    sys.exit("give the folder to write the book into: python -m course_lab.book build/book")
print(write_book(Path(sys.argv[1])))
