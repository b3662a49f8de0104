"""`gfxlab review`: kernels with one fault each, that many findings, and silence about a kernel without."""

import json

import pytest

from gfxlab.engine import dual_mode
from gfxlab.review import findings, overflow

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")

HEAD = """import torch, triton, triton.language as tl
x = torch.arange(300.0, device="cuda")
"""
FINE = """
@triton.jit
def fine_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) + 1, mask=offs < n)
fine_kernel[(2,)](x, torch.empty_like(x), 300, BLOCK=256)
"""
LEAKS = """
@triton.jit
def leak_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr, tl.sum(tl.exp(-a), 0))
leak_kernel[(1,)](x, torch.empty(1, device="cuda"), 300, BLOCK=512)
"""
CHAIN = """
@triton.jit
def chain_kernel(x_ptr):
    i = tl.program_id(0)
    tl.store(x_ptr + i + 1, tl.load(x_ptr + i) * 2 + 1)
chain_kernel[(8,)](x)
"""
LOST = """
@triton.jit
def lost_kernel(x_ptr):
    a = tl.load(x_ptr)
    tl.store(x_ptr, a + 1)
lost_kernel[(4,)](x)
"""
PARTLY = """
@triton.jit
def first_kernel(y_ptr):
    tl.store(y_ptr + tl.program_id(0), 1.0)
@triton.jit
def second_kernel(y_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr, tl.sum(tl.load(y_ptr + offs), 0))
y = torch.empty(64, device="cuda")
first_kernel[(6,)](y)
second_kernel[(1,)](y, x, BLOCK=4)
second_kernel[(1,)](y, x, BLOCK=8)
"""
UNIFORM = """
@triton.jit
def scale_kernel(x_ptr, s_ptr):
    tl.store(x_ptr, tl.load(s_ptr) * 2)
scale_kernel[(1,)](x, torch.empty(1, device="cuda"))
"""
BEFORE = """
@triton.jit
def before_kernel(x_ptr, y_ptr):
    offs = tl.arange(0, 256)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs - 1))
before_kernel[(1,)](x, torch.empty(256, device="cuda"))
"""
SHARED = """
@triton.jit
def shared_kernel(x_ptr):
    tl.store(x_ptr, tl.program_id(0))
shared_kernel[(4,)](x)
"""
EARLY = """
@triton.jit
def early_kernel(y_ptr):
    offs = tl.arange(0, 64)
    tl.store(y_ptr + offs, tl.load(y_ptr + offs) + 1)
early_kernel[(1,)](torch.empty(64, device="cuda"))
"""
OUTSIDE = """
@triton.jit
def outside_kernel(x_ptr):
    offs = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(x_ptr + offs, 1.0)
outside_kernel[(2,)](x)
"""
BEYOND = """
@triton.jit
def beyond_kernel(x_ptr, y_ptr):
    offs = tl.arange(0, 128)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs))
beyond_kernel[(1,)](x.view(3, 100)[0], torch.empty(128, device="cuda"))
"""
ATOMIC = """
@triton.jit
def atomic_kernel(x_ptr, y_ptr):
    tl.atomic_add(y_ptr, 1.0 / (1 + tl.load(x_ptr + tl.program_id(0))))
atomic_kernel[(40,)](x, torch.zeros(1, device="cuda"))
"""


SCALED = """
@triton.jit
def scaled_kernel(x_ptr, y_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr, tl.max((a + 1) * alpha.to(tl.float32) - 1, 0))
scaled_kernel[(1,)](x, torch.empty(1, device="cuda"), 300, -0.5, BLOCK=512)
"""


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        (FINE, None, 0),
        (LEAKS, "leak", 7),
        (SCALED, "leak", 7),
        (CHAIN, "order", 7),
        (LOST, "order", 6),
        (PARTLY, "unwritten", 10),
        (UNIFORM, "unwritten", 6),
        (BEFORE, "out-of-bounds", 7),
        (SHARED, "shared", 6),
        (EARLY, "unwritten", 7),
        (OUTSIDE, "out-of-bounds", 7),
        (BEYOND, "beyond", 7),
        (ATOMIC, None, 0),
    ],
)
def test_each_fault_is_found_where_it_is_and_nothing_else(gfxlab, tmp_path, code, kind, line):
    (tmp_path / "k.py").write_text(HEAD + code)
    status, output, error = gfxlab("review", str(tmp_path / "k.py"), "--json")
    found = [one for one in json.loads(output)["findings"] if one["level"] == "hazard"]
    assert [one["kind"] for one in found] == ([kind] if kind else []), error
    assert status == (1 if kind else 0)
    if kind:
        assert found[0]["line"] == line and found[0]["evidence"] and found[0]["cure"]


ROWS = """
@triton.jit
def rows_kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    offs = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + row * stride + offs, mask=offs < n, other=0.0)
    tl.store(y_ptr + row * stride + offs, a, mask=offs < n)
rows_kernel[(3,)](x, torch.empty_like(x), 100, 100, BLOCK=128, WIDE=False)
"""


def test_an_offset_that_overflows_at_a_size_is_told_without_the_memory(gfxlab, tmp_path):
    (tmp_path / "rows.py").write_text(HEAD + ROWS)
    page = tmp_path / "page.html"
    at = ("--at", "grid_x=2**20", "--at", "stride=4096")
    status, output, _ = gfxlab("review", str(tmp_path / "rows.py"), *at, "--html", str(page))
    assert status == 1 and "An offset overflows (rows_kernel, line 10)" in output
    assert "reaches 4,294,963,200; 32 bits hold 2,147,483,647" in output  # (2**20 - 1) * 4096
    assert "<h2>Wrong, or right by luck</h2>" in page.read_text() and "int64" in page.read_text()
    (tmp_path / "rows.py").write_text(HEAD + ROWS.replace("WIDE=False", "WIDE=True"))
    assert gfxlab("review", str(tmp_path / "rows.py"), *at)[0] == 0
    for wrong, says in ((("--at", "width=3"), "--at width: no kernel"), (("--at", "n"), "such as N=2**31")):
        status, _, error = gfxlab("review", str(tmp_path / "rows.py"), *wrong)
        assert status == 1 and says in error and len(error.splitlines()) == 1


WALK = """
@triton.jit
def walk_kernel(x_ptr, y_ptr, step, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * step
    for i in range(0, tl.cdiv(n, BLOCK)):
        tl.store(y_ptr + at, 1.0)
        at += BLOCK
walk_kernel[(3,)](x, x, 100, 100, BLOCK=4)
"""


def test_an_offset_that_a_loop_carries_is_followed(gfxlab, tmp_path):
    (tmp_path / "walk.py").write_text(HEAD + WALK)
    overflows = {}
    for at in ("step=2**30", "step=2**29", "n=2**31", "n=2147483647", "n=2147483000"):
        output = gfxlab("review", str(tmp_path / "walk.py"), "--json", "--at", at, "--at", "grid_x=3")[1]
        overflows[at] = [one["line"] for one in json.loads(output)["findings"] if one["kind"] == "overflow"]
    # (3 - 1) * 2**30 before the loop; 200 + the steps of the loop, to n rounded up
    assert overflows == {"step=2**30": [6], "step=2**29": [], "n=2**31": [9], "n=2147483647": [9], "n=2147483000": []}


COLUMNS = """
@triton.jit
def columns_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs * STRIDE, mask=offs < n, other=0.0), mask=offs < n)
m = torch.ones(3001 * 32, device="cuda", dtype=torch.float16)
columns_kernel[(3,)](m, torch.empty_like(m), 3001, BLOCK=1024)
"""


ALONG = """
@triton.jit
def along_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for column in range(n):
        total += tl.load(x_ptr + rows * n + column)
    tl.store(y_ptr + rows, total)
m = torch.ones(64, 100, device="cuda")
along_kernel[(1,)](m, torch.empty(64, device="cuda"), 100, BLOCK=64, num_warps=1)
"""


def test_lanes_that_walk_along_their_rows_are_scattered(gfxlab, tmp_path):
    (tmp_path / "along.py").write_text(HEAD + ALONG)
    found = json.loads(gfxlab("review", str(tmp_path / "along.py"), "--json")[1])["findings"]
    assert [(one["kind"], one["line"]) for one in found] == [("uncoalesced", 9)]


@pytest.mark.parametrize(("stride", "expected"), [(1, []), (3, ["uncoalesced"]), (32, ["uncoalesced"])])
def test_scattered_lanes_cost_and_narrow_ones_in_a_row_do_not(gfxlab, tmp_path, stride, expected):
    (tmp_path / "columns.py").write_text(HEAD + COLUMNS.replace("STRIDE", str(stride)))
    output = gfxlab("review", str(tmp_path / "columns.py"), "--json")[1]
    assert [one["kind"] for one in json.loads(output)["findings"] if one["level"] == "cost"] == expected


OURS = """
import torch, course_kernels as kernels
from course_lab.bench import survey
with kernels.use_backend("triton"):
    for name in survey.names("gfx942"):
        if "long rows" not in name:
            survey.CASES[name](survey.Inputs(torch.bfloat16, "gfx942"))
"""
KNOWN = {("conv2d_kernel", "uncoalesced"), ("rank_kernel", "narrow")}  # channels first; rows of any length


@pytest.mark.slow
def test_no_kernel_of_the_course_is_called_wrong(gfxlab, tmp_path):
    (tmp_path / "ours.py").write_text(OURS)
    status, output, _ = gfxlab("review", str(tmp_path / "ours.py"), "--json")
    found = {(one["kernel"], one["kind"]) for one in json.loads(output)["findings"] if one["level"] != "note"}
    assert status == 0 and found <= KNOWN


def test_sizes_may_be_powers_and_products():
    assert overflow.sizes_of(["N=2**31", "M=1<<4", "K=3*5", "J=1_000"]) == {"N": 2**31, "M": 16, "K": 15, "J": 1000}


def test_the_page_is_in_order_and_every_hazard_has_a_cure():
    levels = [kind.level for kind in findings.KINDS.values()]
    assert levels[0] == "hazard" and levels[-1] == "cost"
    assert all(kind.cure for kind in findings.KINDS.values() if kind.level != "note")
