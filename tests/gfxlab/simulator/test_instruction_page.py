"""docs/instructions.md is what `oracle/table.py` writes: edits belong there."""

import os
import re

import pytest
from oracle import assembler, table
from test_coverage import LISTS

PAGE = table.PAGE.read_text(encoding="utf-8")


def test_what_stands_around_the_table_is_the_generators():
    before, between, after = table.around()
    assert PAGE.startswith(before) and between in PAGE and PAGE.endswith(after)


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_the_table_has_what_kernels_were_seen_to_need(path):
    """A line for each, with a mark in the target's column; an instruction that nobody lists is no longer in kernels."""
    column = 2 + table.ARCHS.index(path.stem)
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `")]
    marked = {row[1].strip(" `") for row in rows if "c" in row[column]}
    seen = {re.sub(r"_(e32|e64|sdwa|dpp)$", "", line.split()[0]) for line in path.read_text().splitlines()}
    assert marked == seen


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("ORACLE_TREE"), reason="ORACLE_TREE does not name a checkout")
@pytest.mark.skipif(not assembler.program(), reason="no llvm-mc of LLVM 19 or later is installed")
def test_the_whole_page_is_what_its_command_writes():
    assert table.page() == PAGE
