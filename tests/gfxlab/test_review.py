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
FILLED = """
@triton.jit
def sum_kernel(y_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr, tl.sum(tl.load(y_ptr + offs), 0))
whole, part = x.new_empty(64), x.new_empty(64)
whole[::2], whole[1::2], part[:40] = 1.0, 2.0, x[:40]
sum_kernel[(1,)](whole, x, BLOCK=64)
sum_kernel[(1,)](part, x, BLOCK=32)
sum_kernel[(1,)](part, x, BLOCK=64)
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


ROUNDED = """
@triton.jit
def rounded_kernel(x_ptr, y_ptr):
    tl.atomic_add(y_ptr, 1.0 / (3 + tl.load(x_ptr + tl.program_id(0))))
rounded_kernel[(300,)](x, torch.zeros(1, device="cuda"))
"""
SCALED = """
@triton.jit
def scaled_kernel(x_ptr, y_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr, tl.max((a + 1) * alpha.to(tl.float32) - 1, 0))
scaled_kernel[(1,)](x, torch.empty(1, device="cuda"), 300, -0.5, BLOCK=512)
"""


TURNS = """
@triton.jit
def turns_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) * 2)
    # between
    tl.store(y_ptr + offs, tl.load(x_ptr + BLOCK - 1 - offs))
turns_kernel[(1,)](x, torch.empty(256, device="cuda"), BLOCK=256)
"""
TABLE = """
@triton.jit
def table_kernel(t_ptr, y_ptr):
    offs = tl.arange(0, 64)
    a_ptr = tl.load(t_ptr).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + offs, tl.load(a_ptr + offs))
table = torch.tensor([x.data_ptr()], device="cuda")
for n in (64, 65):
    table_kernel[(1,)](table, torch.empty(n, device="cuda"))
"""
ORDERED = TURNS.replace("# between", "tl.debug_barrier()")
HANDED = """
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.jit
def handed_kernel(d, both, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    a = tl.load(both[0] + offs, mask=offs < n)
    tl.store(both[1][0], tl.sum(a) + tl.sum(d.load([0])))
d = TensorDescriptor.from_tensor(x, [64])
handed_kernel[(1,)](d, (x, (torch.empty(1, device="cuda"), 3)), 100, BLOCK=128)
"""
HANDED_WELL = HANDED.replace("offs < n", "offs < n, other=0.0")
IN_PLACE = """
@triton.jit
def swap_kernel(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + BLOCK - 1 - offs, tl.load(x_ptr + offs))
swap_kernel[(1,)](x, BLOCK=256)
"""


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        (FINE, None, 0),
        (TURNS, "race", 9),
        (ORDERED, None, 0),
        (TABLE, None, 0),
        (IN_PLACE, "race", 7),
        (LEAKS, "leak", 7),
        (SCALED, "leak", 7),
        (HANDED, "leak", 8),
        (HANDED_WELL, None, 0),
        (CHAIN, "order", 7),
        (LOST, "order", 6),
        (PARTLY, "unwritten", 10),
        (FILLED, "unwritten", 7),
        (UNIFORM, "unwritten", 6),
        (BEFORE, "out-of-bounds", 7),
        (SHARED, "shared", 6),
        (EARLY, "unwritten", 7),
        (OUTSIDE, "out-of-bounds", 7),
        (BEYOND, "beyond", 7),
        (ATOMIC, None, 0),
        (ROUNDED, None, 0),
    ],
)
def test_each_fault_is_found_where_it_is_and_nothing_else(gfxlab, tmp_path, code, kind, line):
    (tmp_path / "k.py").write_text(HEAD + code)
    status, output, error = gfxlab("review", str(tmp_path / "k.py"), "--json")
    if code is HANDED_WELL:
        assert "interpreter" not in output  # it was asked
    found = [one for one in json.loads(output)["findings"] if one["level"] == "hazard"]
    assert [one["kind"] for one in found] == ([kind] if kind else []), error
    assert status == (1 if kind else 0)
    if kind:
        assert found[0]["line"] == line and found[0]["evidence"] and found[0]["cure"]


HARMLESS = """
@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + offs, mask=offs < n)
    a = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, w * a / tl.sum(a, 0), mask=offs < n)
for n in (256, 200):
    norm_kernel[(1,)](x, x, torch.empty_like(x), n, BLOCK=256)
assert False, "not what was wanted"
"""
TUNED = """
@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs), mask=offs < n)
tuned_kernel[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, torch.empty_like(x), 300)
"""
SEVERAL = """
@triton.jit
def several_kernel(x_ptr):
    offs = tl.arange(0, 1024)
    tl.store(x_ptr + offs, offs + tl.program_id(0))
several_kernel[(8,)](torch.zeros(1024, device="cuda"), num_warps=1)
"""


def _reviewed(gfxlab, path, code, *options):
    path.write_text(HEAD + code)
    status, output, error = gfxlab("review", str(path), "--json", *options)
    return status, json.loads(output)["findings"], error


def test_the_load_that_leaks_is_named_at_the_size_at_which_it_does_and_the_page_survives_the_script(gfxlab, tmp_path):
    status, found, _ = _reviewed(gfxlab, tmp_path / "k.py", HARMLESS)
    assert [(one["kind"], one["line"]) for one in found if one["level"] == "hazard"] == [("leak", 8), ("failed", 0)]
    assert status == 1 and "line 12: AssertionError: not what was wanted" in found[1]["evidence"]


def test_every_tuner_of_a_file_chooses_before_its_kernel_is_looked_at(gfxlab, tmp_path):
    """The interpreter, which is asked about the first kernel, takes no tuner's measure away from the second."""
    tuned = TUNED.replace("tl.load(x_ptr + offs)", "tl.load(x_ptr + offs, mask=offs < n)")
    (tmp_path / "two.py").write_text(HEAD + FINE + tuned)
    status, output, _ = gfxlab("review", str(tmp_path / "two.py"))
    assert status == 0 and "tuned_kernel, grid 2: " in output  # of BLOCK=256, and no launch besides it


def test_what_a_tuner_stumbles_over_is_a_finding(gfxlab, tmp_path):
    _, found, _ = _reviewed(gfxlab, tmp_path / "k.py", TUNED)
    assert [(one["kind"], one["kernel"], one["line"]) for one in found] == [("out-of-bounds", "tuned_kernel", 8)]


def test_a_line_has_one_finding_of_a_kind(gfxlab, tmp_path):
    _, found, _ = _reviewed(gfxlab, tmp_path / "k.py", SEVERAL)
    assert [(one["kind"], one["line"]) for one in found] == [("shared", 7)] and "more like it" in found[0]["evidence"]


ASKS = """
import sys
print("begins")
@triton.jit
def asks_kernel(x_ptr):
    tl.store(x_ptr + tl.program_id(0), 1.0)
asks_kernel[(int(sys.argv[2]),)](x)
"""


def test_a_script_is_given_arguments_and_prints_beside_the_data(gfxlab, tmp_path):
    (tmp_path / "asks.py").write_text(HEAD + ASKS)
    for verb in ("review", "simulate", "trace", "report", "counters", "step"):
        status, output, error = gfxlab(verb, str(tmp_path / "asks.py"), "--json", "--", "--many", "3")
        assert status == 0 and json.loads(output) and "begins" in error, verb


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
        assert status == 2 and says in error and len(error.splitlines()) == 1


ONE = """
@triton.jit
def one_kernel(x_ptr, y_ptr, at_ptr, stride, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n, other=0.0), mask=offs < n)
    row = tl.load(at_ptr)
    tl.store(y_ptr + row * stride, 1.0)
one_kernel[(1,)](x, torch.empty_like(x), torch.tensor([2], dtype=torch.int32, device="cuda"), 100, 100, BLOCK=128)
"""


def test_one_program_grows_with_the_size_it_compares_with_and_an_index_with_its_table(gfxlab, tmp_path):
    overflows = {}
    for at in ("n=2**31", "n=2**31+1", "stride=2**30-1", "stride=2**30", "at_ptr=2**25"):
        _, found, _ = _reviewed(gfxlab, tmp_path / "one.py", ONE, "--at", at)
        overflows[at] = [one["line"] for one in found if one["kind"] == "overflow"]
    # offsets up to n, rounded up to whole blocks, less one; 2 * stride; 2**25 * 100
    assert overflows == {
        "n=2**31": [],
        "n=2**31+1": [6],
        "stride=2**30-1": [],
        "stride=2**30": [9],
        "at_ptr=2**25": [9],
    }


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


TURNED = """
@triton.jit
def turned_kernel(x_ptr, y_ptr, step, M: tl.constexpr, N: tl.constexpr):
    rows = (tl.arange(0, M) * step) % M
    cols = tl.arange(0, N)
    tl.store(y_ptr + tl.arange(0, M)[:, None] * N + cols[None, :], tl.load(x_ptr + cols[None, :] * M + rows[:, None]))
m = torch.ones(32, 256, device="cuda")
turned_kernel[(1,)](m, torch.empty_like(m), 5, M=32, N=256, num_warps=1)
"""


def test_a_tile_taken_across_its_rows_is_scattered_though_it_is_taken_whole(gfxlab, tmp_path):
    _, found, _ = _reviewed(gfxlab, tmp_path / "turned.py", TURNED)
    assert [(one["kind"], one["line"]) for one in found] == [("uncoalesced", 8)]


AGAIN = """
@triton.jit
def passes_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(3):
        for at in range(0, n, BLOCK):
            total += tl.load(x_ptr + at + offs)
    tl.store(y_ptr + offs, total)
passes_kernel[(1,)](torch.ones(1 << 15, device="cuda"), torch.empty(1024, device="cuda"), 1 << 15, BLOCK=1024)

@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for at in range(0, N, BLOCK):
        k = at + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(a_ptr + m[:, None] * N + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]))
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)
a = torch.ones(192, 192, device="cuda", dtype=torch.float16)
product_kernel[(3, 3)](a, a.clone(), torch.empty(192, 192, device="cuda"), N=192, BLOCK=64)
"""


def test_bytes_that_one_program_reads_again_cost_and_shared_tiles_do_not(gfxlab, tmp_path):
    _, found, _ = _reviewed(gfxlab, tmp_path / "again.py", AGAIN)
    assert [(one["kind"], one["line"]) for one in found if one["kind"] == "again"] == [("again", 10)]
    assert "x_ptr: each byte is loaded 3 times" in found[0]["evidence"]


CROWDED = """
@triton.jit
def crowded_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    block = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, block * tl.sum(block, 0))
m = torch.ones(1 << 15, device="cuda")
crowded_kernel[(1,)](m, torch.empty_like(m), N=1 << 15, num_warps=1)
"""


SPARSE = """
@triton.jit
def sparse_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x_ptr, y_ptr = x_ptr + tl.program_id(0) * n, y_ptr + tl.program_id(0) * n
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)
m = torch.ones(PROGRAMS * 40, device="cuda")
sparse_kernel[(PROGRAMS,)](m, torch.empty_like(m), 40, BLOCK=256, num_warps=1)
"""


@pytest.mark.parametrize(("programs", "block", "kinds"), [(500, 256, ["idle-lanes"]), (500, 64, []), (2, 256, [])])
def test_lanes_that_a_buffer_load_masks_are_idle(gfxlab, tmp_path, programs, block, kinds):
    code = SPARSE.replace("PROGRAMS", str(programs)).replace("BLOCK=256", f"BLOCK={block}")
    _, found, _ = _reviewed(gfxlab, tmp_path / "sparse.py", code)
    costs = [one for one in found if one["level"] == "cost"]
    assert [one["kind"] for one in costs] == kinds
    assert all("In its loads 16% of the lanes" in one["evidence"] and one["line"] == 8 for one in costs)


def test_what_is_said_of_a_whole_kernel_has_a_line_too(gfxlab, tmp_path):
    _, found, _ = _reviewed(gfxlab, tmp_path / "crowded.py", CROWDED)
    assert {"spills", "occupancy"} <= {one["kind"] for one in found} and all(one["line"] for one in found)


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
    for word in ("n=0", "n=5-5"):
        with pytest.raises(ValueError, match=f"--at {word}: a size is 1 or more"):
            overflow.sizes_of([word])
    assert overflow.sizes_of(["N=2**31", "M=1<<4", "K=3*5", "J=1_000"]) == {"N": 2**31, "M": 16, "K": 15, "J": 1000}


def test_the_page_is_in_order_and_every_hazard_has_a_cure():
    levels = [kind.level for kind in findings.KINDS.values()]
    assert levels[0] == "hazard" and levels[-1] == "cost"
    assert all(kind.cure for kind in findings.KINDS.values() if kind.level != "note")
