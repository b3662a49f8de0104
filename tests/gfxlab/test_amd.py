"""The AMD report: figures of known kernels, refusals, errors in plain words, shipping, the listing."""

from __future__ import annotations

import inspect
import linecache
import re
import textwrap
from types import SimpleNamespace

import amd_kernels as kernels
import nbclient
import nbformat
import pytest
import torch

from gfxlab import hardware
from gfxlab.code import AmdError, AmdLimitError, amd_report, compare, compiler, isa, ship
from gfxlab.code.errors import plain
from gfxlab.code.explanations import explain
from gfxlab.code.figures import format_widths
from gfxlab.code.report import measure
from gfxlab.latest import Latest
from gfxlab.sandbox import Outcome
from gfxlab.units import format_bytes, format_seconds

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


def add_report(n: int, arch: str = "gfx942", **options):
    x = torch.zeros(n)
    return amd_report(kernels.add, x, x, x, n, BLOCK=1024, arch=arch, **options)


def line_of(function, text: str) -> int:
    lines, start = inspect.getsourcelines(function.fn)
    return start + next(i for i, line in enumerate(lines) if text in line)


# ---- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
def test_a_size_divisible_by_16_gives_128_bit_loads_and_an_odd_size_does_not(arch):
    even, odd = add_report(4096, arch), add_report(4001, arch)
    assert set(even.loads) == set(even.stores) == {128}
    assert set(odd.loads) == set(odd.stores) == {32}
    threads = even.threads
    assert sum(even.loads.values()) == 2 * 1024 // threads // 4
    assert sum(odd.loads.values()) == 2 * 1024 // threads
    assert odd.instructions > even.instructions


def test_an_unaligned_pointer_is_seen():
    x = torch.zeros(4097)
    aligned = amd_report(kernels.add, x[:-1], x[:-1], x[:-1], 4096, BLOCK=1024)
    shifted = amd_report(kernels.add, x[1:], x[1:], x[1:], 4096, BLOCK=1024)
    assert set(aligned.loads) == {128} and set(shifted.loads) == {32}


@pytest.mark.parametrize(
    "arch, unit, shape",
    [
        ("gfx90a", "mfma", "32x32x8"),
        ("gfx942", "mfma", "32x32x8"),
        ("gfx950", "mfma", "32x32x16"),
        ("gfx1100", "wmma", "16x16x16"),
        ("gfx1201", "wmma", "16x16x16"),
    ],
)
def test_a_dot_uses_the_matrix_units(arch, unit, shape):
    a = torch.zeros(64, 64, dtype=torch.bfloat16)
    report = amd_report(kernels.dot, a, a, torch.zeros(64, 64), M=64, arch=arch)
    m, n, k = map(int, shape.split("x"))
    assert report.matrix == {f"{unit} {shape} bf16 -> f32": 64**3 // (m * n * k) // 4}  # 4 waves
    assert report.mix["matrix"] == sum(report.matrix.values())
    assert 0 < report.lds <= report.lds_limit
    assert set(report.loads) == {128}


@pytest.mark.parametrize("arch", ARCHS)
def test_a_row_reduction_passes_values_between_lanes(arch):
    x = torch.zeros(8, 1008, dtype=torch.bfloat16)
    report = amd_report(kernels.row_sum, x, torch.zeros(8), 1008, BLOCK=1024, arch=arch)
    assert report.mix["cross-lane"] >= 6 and report.mix["barrier"] >= 1 and report.lds > 0
    assert report.stores == {32: 1}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_occupancy_is_the_one_that_llvm_prints(arch, num_warps):
    report = amd_report(
        kernels.dot, signature={"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32"}, constexprs={"M": 64}, arch=arch,
        num_warps=num_warps,
    )  # fmt: skip
    printed = int(re.search(r"; Occupancy: (\d+)", report.asm)[1])
    # LLVM knows neither Triton's LDS nor that workgroups are whole
    most = hardware.occupancy(arch, report.vgprs, 0, 1).waves
    assert most == printed
    assert report.occupancy.waves <= printed


def test_occupancy_names_what_limits_it():
    assert hardware.occupancy("gfx942", 40, 0, 4) == hardware.Occupancy(8.0, 8, "wave slots", 8)
    assert hardware.occupancy("gfx942", 128, 0, 4) == hardware.Occupancy(4.0, 8, "VGPRs", 4)
    assert hardware.occupancy("gfx942", 40, 32 << 10, 4) == hardware.Occupancy(2.0, 8, "LDS", 2)
    assert hardware.occupancy("gfx1100", 256, 0, 4) == hardware.Occupancy(5.0, 16, "VGPRs", 5)
    assert hardware.occupancy("gfx950", 40, 161 * 512, 4).workgroups == 1  # granules of 1280 bytes


def test_spills_are_reported_and_noted():
    clean = add_report(4096)
    asm = re.sub(r"\.vgpr_spill_count: *0", ".vgpr_spill_count: 12", clean.asm)
    asm = re.sub(r"\.private_segment_fixed_size: *0", ".private_segment_fixed_size: 52", asm)
    spilling = measure(compiler.Compiled("add", "gfx942", asm, 0, 4, 2, {}))
    assert (clean.spills, spilling.spills, spilling.scratch) == (0, 12, 52)
    assert "12 (52 bytes of private memory a lane)" in str(spilling)
    assert any("12 registers did not fit" in note for note in spilling.notes()) and not clean.notes()


def test_spills_of_gfx90a_are_not_mistaken_for_the_kernels_own_accesses():
    asm = """
.Lfunc_begin0:
	buffer_load_dwordx4 v[2:5], v1, s[8:11], 0 offen
	buffer_store_dword v4, off, s[20:23], 0 offset:492 ; 4-byte Folded Spill
	buffer_load_dword v4, off, s[20:23], 0 offset:492 ; 4-byte Folded Reload
.Lfunc_end0:
"""
    instructions = isa.parse(asm).instructions
    assert isa.widths(instructions, "global load") == {128: 1}
    assert [instruction.kind for instruction in instructions[1:]] == ["scratch", "scratch"]
    assert [explain(instruction) for instruction in instructions[1:]] == [
        "spill: save a register that did not fit",
        "spill: restore a register that did not fit",
    ]


def test_a_signature_says_nothing_about_alignment():
    signature = dict.fromkeys(("x_ptr", "y_ptr", "out_ptr"), "*fp32") | {"n": "i32"}
    report = amd_report(kernels.add, signature=signature, constexprs={"BLOCK": 1024})
    assert set(report.loads) == {32}


def test_repeating_a_report_costs_nothing(monkeypatch):
    first = add_report(4096)
    monkeypatch.setattr(compiler, "_run", lambda *_: pytest.fail("compiled again"))
    assert add_report(4096).asm == first.asm


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch, most", [("gfx942", 16), ("gfx1100", 32)])
def test_workgroups_over_1024_threads_are_refused(arch, most):
    with pytest.raises(AmdLimitError, match=f"{2 * most * 1024 // most} threads.*num_warps <= {most}"):
        add_report(4096, arch, num_warps=2 * most)
    assert add_report(4096, arch, num_warps=most).threads == 1024


def test_num_warps_must_be_a_power_of_two():
    with pytest.raises(AmdLimitError, match="power of two, got 3"):
        add_report(4096, num_warps=3)


def test_too_much_lds_is_refused():
    a = torch.zeros(128, 128, dtype=torch.bfloat16)
    with pytest.raises(AmdLimitError, match=r"131,072 bytes of LDS; gfx942 has 65,536.*num_stages \(now 3\)"):
        amd_report(kernels.long_dot, a, a, a.float(), 8, M=128, num_warps=8, num_stages=3)


def test_an_unknown_architecture_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown AMD architecture 'gfx000'; known: gfx90a, gfx942"):
        add_report(4096, "gfx000")


def test_a_signature_must_name_every_argument():
    with pytest.raises(TypeError, match="unknown: z; missing: y_ptr, out_ptr, n"):
        amd_report(kernels.add, signature={"x_ptr": "*fp32", "z": "i32"}, constexprs={"BLOCK": 16})


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: amd_report(kernels.add, x, x, x, 64), "add.x_ptr.*missing a required argument: 'BLOCK'"),
        (lambda x: amd_report(kernels.add, x, x, x, 64, BLOCK=64, wave_per_eu=2), "add.*wave_per_eu"),
        (lambda x: amd_report(kernels.add, x.numpy(), x, x, 64, BLOCK=64), "add.*ndarray"),
        (lambda x: amd_report(len, x), "takes a @triton.jit function, got <built-in function len>"),
        (lambda x: amd_report(kernels.add, x, signature={}), "either the arguments of a launch or a signature"),
    ],
)
def test_wrong_arguments_are_named_with_the_kernel(call, words):
    with pytest.raises(TypeError, match=words):
        call(torch.zeros(64))


# ---- compile errors --------------------------------------------------------------------------------------------------

X = torch.zeros(64, dtype=torch.float16)


@pytest.mark.parametrize(
    "kernel, args, line, words",
    [
        (kernels.bad_lambda, (X,), "lambda v", "cannot contain a lambda"),
        (kernels.bad_dict, (X,), "table =", "cannot contain a dict"),
        (kernels.bad_break, (X, 5), "    break", "cannot break"),
        (kernels.bad_if, (X, 5, 64), "if offs < n", "use tl.where or a mask"),
        (kernels.bad_loop, (X, 5), "for _ in", "acc enters the loop as int32 and leaves it as fp32"),
        (kernels.bad_global, (X,), "SCALE * 1.0", "cannot read the global variable SCALE"),
        (kernels.bad_exp, (X, 64), "tl.exp", "convert first with .to(tl.float32)"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_compile_error_is_the_learners_line_and_a_plain_sentence(kernel, args, line, words):
    with pytest.raises(AmdError) as caught:
        amd_report(kernel, *args)
    assert words in str(caught.value)
    assert caught.value.line == line_of(kernel, line)
    assert caught.value.filename == kernels.__file__
    assert f"line {caught.value.line}, `" in str(caught.value)


def test_an_error_in_a_device_function_is_placed_there():
    with pytest.raises(AmdError) as caught:
        amd_report(kernels.bad_inside, X, 64)
    assert caught.value.line == line_of(kernels.calls_bad_if, "if x > 0")


@pytest.mark.parametrize(
    "kernel, words",
    [
        (kernels.bad_helper, "plain_helper, a plain Python function; put @triton.jit"),
        (kernels.bad_table, "TABLE, a dict"),
    ],
)
def test_what_cannot_be_shipped_is_named(kernel, words):
    with pytest.raises(AmdError, match=words):
        amd_report(kernel, X)


@pytest.mark.parametrize(
    "message, words",
    [
        ("Both operands must be same dtype. Got fp16 and fp32", "tl.dot was given fp16 and fp32"),
        ("Cannot evaluate f-string containing non-constexpr conversion values", "only hold tl.constexpr"),
        ("int32[] is not string", "tl.device_print"),
        ("NotImplementedError('__setitem__ is not supported in triton')", "cannot be assigned; use tl.where"),
        ("TypeError(\"object of type 'tensor' has no len()\")", "a block has no len()"),
        ("TypeError('must be real number, not tensor')", "use tl.exp"),
        ("TypeError(\"float() argument must be a string or a real number, not 'tensor'\")", "x.to(tl.float32)"),
        ("Unsupported function referenced: <ufunc 'exp'>", "use Triton's own"),
        ("Unsupported function referenced: <built-in method exp of type object at 0x7f>", "use Triton's own"),
        ("TypeError(\"got an unexpected keyword argument 'dim'\")", "axis=0"),
        ("TypeError(\"got an unexpected keyword argument 'size'\")", "no argument size"),
        ("TypeError(\"missing a required argument: 'dtype'\")", "the argument dtype is missing"),
        ("store() missing 1 required positional argument: 'value'", "the argument value is missing"),
        ("'int' object is not iterable", "a shape is a tuple"),
        ("AttributeError(\"'constexpr' object has no attribute 'handle'\")", "`while i < n`"),
        ("Mismatched type for v between then block (fp32) and else block (int32)", "v is fp32 in one branch and int32"),
        (
            "Loop-carried variable acc has initial type fp32 but is re-assigned to <['64'], fp32> in loop! Please",
            "acc enters the loop as fp32 and leaves it as a block of fp32",
        ),
        ("AST binary operator 'MatMult' is not (currently) implemented.", "use tl.dot(a, b)"),
        ("unsupported operand type(s) for **: 'tensor' and 'int'", "write x * x"),
        ("NameError('sum is not defined')", "use tl.sum"),
        ("NameError('total_sum is not defined')", "total_sum is not defined here"),
        ("min requires at least 2 values", "tl.max(x, axis=0)"),
        ("'dtype' object has no attribute 'scalar'", "x.to(tl.float32)"),
        ("'List' object has no attribute 'func'", "tl.static_range"),
        ("invalid axis 1. Expected -1 <= axis < 1", "no axis 1"),
        ("error encountered during parsing", "does not say where"),
    ],
)
def test_what_the_compiler_says_becomes_a_plain_sentence(message, words):
    assert words in plain(message)


def test_an_unknown_message_is_passed_on():
    assert plain("\nsomething new\nmore") == "something new"


def test_a_compiler_that_dies_takes_nothing_with_it(monkeypatch):
    dead = Outcome("crash", output="warning\nLLVM ERROR: Cannot select: x\n", signal=6)
    monkeypatch.setattr(compiler.sandbox, "run", lambda *_, **__: dead)
    monkeypatch.setattr(compiler, "_answers", Latest())
    with pytest.raises(AmdError, match="gave up on add for gfx942: LLVM ERROR: Cannot select"):
        add_report(4096)


# ---- shipping --------------------------------------------------------------------------------------------------------


def test_a_kernel_travels_with_its_functions_constants_and_line_numbers():
    packed = ship.pack(kernels.uses_names)
    assert [function["name"] for function in packed["functions"]] == ["uses_names", "square"]
    names = packed["functions"][0]["names"]
    assert names["TWICE"] == {"constexpr": {"value": 2}} and names["square"] == {"function": 1}
    report = amd_report(kernels.uses_names, torch.zeros(64), 64)
    lines = {instruction.source.line for instruction in report.program.instructions if instruction.source}
    assert line_of(kernels.uses_names, "tl.load") in lines and line_of(kernels.square, "x * x") in lines


def test_a_process_that_compiles_goes_on_reading_its_files_as_they_are(monkeypatch):
    """A worker of a pool may have no processes: it compiles where it runs kernels, interpreted ones too."""
    monkeypatch.setattr(compiler.multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    monkeypatch.setattr(compiler, "_answers", Latest())
    linecache.cache.pop(kernels.__file__, None)
    assert amd_report(kernels.uses_names, torch.zeros(64), 64).stores
    assert inspect.getsource(kernels.uses_names.fn).startswith("@triton.jit\ndef uses_names(")


def test_a_kernel_inside_a_function_can_be_compiled():
    import triton
    import triton.language as tl

    factor = tl.constexpr(3.0)

    @triton.jit
    def local(x_ptr, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        tl.store(x_ptr + offs, tl.load(x_ptr + offs) * factor)

    assert amd_report(local, torch.zeros(64), 64).stores


CELLS = [
    """
    import torch, triton
    import triton.language as tl
    from gfxlab import amd_report, trace
    OFFSET = tl.constexpr(1.5)
    """,
    """
    @triton.jit
    def plus(x):
        return x + OFFSET

    @triton.jit
    def norm(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tl.program_id(0) * n + offs, mask=offs < n, other=0.0)
        tl.store(out_ptr + tl.program_id(0), plus(tl.sum(x, 0)))
    """,
    """
    x, out = torch.ones(4, 100), torch.zeros(4)
    with trace() as launch:
        norm[(4,)](x, out, 100, BLOCK=128)
    print(out.tolist(), amd_report(norm, x, out, 100, BLOCK=128).stores, launch.amd_report().stores)
    print([g.text.strip() for g in launch.amd_report().listing(only="tl.sum").groups])
    """,
]


def test_a_notebooks_kernel_is_interpreted_and_compiled_under_the_users_triton_interpret(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in CELLS]
    notebook = nbclient.NotebookClient(nbformat.v4.new_notebook(cells=cells), kernel_name="python3").execute()
    assert "".join(output.get("text", "") for output in notebook.cells[-1].outputs) == (
        "[101.5, 101.5, 101.5, 101.5] {32: 1} {32: 1}\n['tl.store(out_ptr + tl.program_id(0), plus(tl.sum(x, 0)))']\n"
    )


# ---- reading and showing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mnemonic, kind, bits",
    [
        ("buffer_load_dwordx4", "global load", 128),
        ("global_load_b128", "global load", 128),
        ("global_load_dword", "global load", 32),
        ("buffer_load_ushort", "global load", 16),
        ("global_load_d16_hi_b16", "global load", 16),
        ("global_load_ubyte", "global load", 8),
        ("buffer_store_short_d16_hi", "global store", 16),
        ("global_store_b64", "global store", 64),
        ("global_atomic_add_f32", "atomic", 32),
        ("global_atomic_add_x2", "atomic", 64),
        ("global_atomic_pk_add_bf16", "atomic", 32),
        ("ds_read2_b64", "LDS", 128),
        ("ds_read_b64_tr_b16", "LDS", 64),
        ("s_load_dwordx8", "scalar load", 256),
        ("buffer_gl0_inv", "cache", 0),
        ("v_exp_f32", "transcendental", 0),
        ("v_rcp_f32", "transcendental", 0),
        ("v_div_fmas_f32", "vector", 0),  # the rate of a plain multiplication and addition
        ("v_wmma_f32_16x16x16_bf16", "matrix", 0),
        ("v_add_f32_dpp", "cross-lane", 0),
        ("s_waitcnt", "wait", 0),
    ],
)
def test_kind_and_width_of_an_instruction(mnemonic, kind, bits):
    instruction = isa._instruction(mnemonic, "", "", None)
    assert (instruction.kind, instruction.bits) == (kind, bits)


def test_every_instruction_of_the_sample_kernels_is_explained():
    x = torch.zeros(64, 64, dtype=torch.bfloat16)
    for arch in ARCHS:
        for instruction in amd_report(kernels.dot, x, x, x.float(), M=64, arch=arch).program.instructions:
            assert explain(instruction) and instruction.kind != "other", instruction


def test_the_listing_puts_instructions_beside_their_source_line():
    listing = add_report(4096).listing()
    headings = {group.text.strip(): group for group in listing.groups}
    store = headings["tl.store(out_ptr + offs, x + y, mask=mask)"]
    assert any(instruction.kind == "global store" for instruction in store.instructions)
    assert "write 128 bits per lane" in str(listing)
    assert len(listing.groups) < len(add_report(4096).listing(by="address").groups)
    with pytest.raises(ValueError, match="'line' or 'address'"):
        add_report(4096).listing(by="colour")


def test_a_reduction_is_listed_under_the_kernels_line_not_under_tritons():
    report = amd_report(kernels.row_sum, torch.zeros(2, 1024), torch.zeros(2), 1024, BLOCK=1024)
    by_line = {group.text.strip(): group for group in report.listing().groups}
    summed = by_line["tl.store(out_ptr + pid, tl.sum(x * x, 0))"]
    assert any(instruction.kind == "cross-lane" for instruction in summed.instructions)
    assert {group.source.filename for group in report.listing().groups if group.source} == {kernels.__file__}


def test_the_report_as_text():
    assert format_widths({128: 2, 32: 1}) == "2 x 128-bit, 1 x 32-bit"
    lines = str(add_report(4096)).splitlines()
    assert lines[0] == "add on gfx942"
    assert "  workgroup          4 waves x 64 lanes = 256 threads" in lines
    assert "  global loads       2 x 128-bit" in lines
    assert "  waves per SIMD     8 of 8, limited by wave slots" in lines


def test_differences_are_marked():
    both = compare(add_report(4096), add_report(4001), ("even", "odd"))
    assert {"global loads", "global stores", "vector"} <= set(both.differences)
    assert "workgroup" not in both.differences
    marked = [line for line in str(both).splitlines() if line.startswith("*")]
    assert any("2 x 128-bit" in line and "8 x 32-bit" in line for line in marked)
    assert both._repr_html_().count('class="on"') == len(both.differences)


def test_html_escapes_the_kernels_text():
    html = add_report(4096).listing()._repr_html_()
    assert "mask = offs &lt; n" in html and "offs < n" not in html
    assert "--jp-content-font-color1" in html and "prefers-color-scheme:dark" in html


# ---- cards -----------------------------------------------------------------------------------------------------------


def test_the_lower_bound_is_the_slower_of_memory_and_arithmetic():
    bound = hardware.lower_bound(5.3e9, 163.4e9, "MI300X")
    assert bound.memory_seconds == pytest.approx(1e-3) and bound.compute_seconds == pytest.approx(1e-3)
    assert hardware.lower_bound(5.3e9, 1, "MI300X").roof == "memory"
    assert hardware.lower_bound(1, 1e12, "MI300X", unit="bf16").roof == "compute"
    assert bound.copy_seconds > bound.memory_seconds and "BabelStream" in str(bound)
    assert hardware.lower_bound(1e9, 0, "RX 9070 XT").copy_seconds is None


def test_cards_are_found_by_name_and_architecture():
    assert hardware.card("mi300x").arch == "gfx942" and hardware.card("gfx1201").name == "RX 9070 XT"
    with pytest.raises(ValueError, match="unknown GPU 'H100'; known: MI210"):
        hardware.card("H100")
    with pytest.raises(ValueError, match="MI210 has no unit 'fp8'; it has fp32, bf16"):
        hardware.lower_bound(1, 1, "MI210", unit="fp8")
    with pytest.raises(ValueError, match="negative"):
        hardware.lower_bound(-1, 0)


@pytest.mark.parametrize("card", hardware.CARDS.values(), ids=lambda card: card.name)
def test_the_table_of_cards_is_consistent(card):
    assert card.arch in hardware.LIMITS
    assert card.fp32 < card.bf16_matrix and (card.fp8_matrix is None or card.fp8_matrix > card.bf16_matrix)
    assert card.copy is None or 0.5 * card.bandwidth < card.copy < card.bandwidth
    assert 100 < card.ridge() < 400


def test_sizes_and_times_read_well():
    assert [format_bytes(n) for n in (512, 1536, 24 << 20)] == ["512 B", "1.5 KiB", "24 MiB"]
    assert [format_seconds(s) for s in (3.2e-7, 4.8e-6, 1.2e-3)] == ["320 ns", "4.8 us", "1.2 ms"]
    assert textwrap.dedent(str(hardware.lower_bound(0, 0))).startswith("MI300X: at least 0 ns")
