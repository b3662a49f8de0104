"""What one kernel needs more of than another: each sentence, and silence where nothing is worse."""

from dataclasses import replace

import amd_kernels as kernels
import pytest
import torch

from gfxlab import hardware
from gfxlab.code import amd_report, regressions
from gfxlab.code.report import AmdReport


def made(**figures) -> AmdReport:
    """A report with these figures; widths and matrix instructions are set as if they had been counted."""
    counted = {name: figures.pop(name) for name in ("loads", "stores", "matrix", "mix") if name in figures}
    vgprs, lds = figures.get("vgprs", 32), figures.get("lds", 0)
    plain = {"vgprs": vgprs, "agprs": 0, "sgprs": 20, "vgpr_spills": 0, "sgpr_spills": 0, "scratch": 0, "lds": lds}
    plain |= {"threads": 256, "num_warps": 4, "num_stages": 2, "code_bytes": 800, "asm": "", "sources": {}}
    occupancy = hardware.occupancy("gfx942", vgprs, lds, 4)
    report = AmdReport(name="k", arch="gfx942", occupancy=occupancy, **plain | figures)
    for name, value in ({"loads": {128: 2}, "stores": {128: 1}, "matrix": {}, "mix": {}} | counted).items():
        report.__dict__[name] = value
    return report


@pytest.mark.parametrize(
    "figures, sentences",
    [
        ({}, []),
        ({"vgprs": 60}, []),
        ({"vgprs": 200}, ["200 vector registers where 32 would do, so 2 waves a SIMD instead of 8."]),
        ({"vgprs": 300}, ["300 vector registers where 32 would do, so 1 wave a SIMD instead of 8."]),
        ({"lds": 40_000}, ["40,000 bytes of LDS where none would do, so 1 wave a SIMD instead of 8."]),
        ({"lds": 4096}, ["4,096 bytes of LDS where none would do."]),
        ({"lds": 32}, []),
        ({"vgpr_spills": 12}, ["12 registers spilled to memory, where none needs to."]),
        ({"sgpr_spills": 1}, ["1 register spilled to memory, where none needs to."]),
        ({"loads": {32: 8}}, ["8 x 32-bit loads where 2 x 128-bit loads would do."]),
        ({"loads": {16: 8}}, ["8 x 16-bit loads where 2 x 64-bit loads would do."]),
        ({"loads": {32: 2}}, ["Loads of 32 bits a lane, where 128 are possible."]),
        ({"stores": {16: 8}}, ["8 x 16-bit stores where one 128-bit store would do."]),
        ({"loads": {128: 4, 16: 1}}, []),
        ({"loads": {128: 4}}, []),
        ({"loads": {}}, []),
    ],
)
def test_what_is_worse_is_said_and_nothing_else(figures, sentences):
    assert regressions(made(**figures), made()) == sentences


def test_better_is_not_worse():
    worse = made(vgprs=300, lds=40_000, vgpr_spills=12, loads={32: 8}, stores={16: 8})
    assert regressions(made(), worse) == []
    assert len(regressions(worse, made())) == 5


def test_four_narrow_loads_instead_of_one():
    assert regressions(made(loads={16: 4}), made(loads={128: 1})) == [
        "4 x 16-bit loads where one 64-bit load would do."
    ]
    assert regressions(made(loads={16: 8}), made(loads={128: 1})) == [
        "8 x 16-bit loads where one 128-bit load would do."
    ]


def test_fewer_waves_for_another_reason_names_it():
    few = made()
    few = replace(few, occupancy=replace(few.occupancy, waves=4, limit="workgroup slots"))
    few.__dict__.update(loads={128: 2}, stores={128: 1}, matrix={}, mix={})
    assert regressions(few, made()) == ["4 waves a SIMD instead of 8, limited by workgroup slots."]


def test_products_without_the_matrix_units():
    dot = made(matrix={"mfma 32x32x8 bf16 -> f32": 4, "mfma 16x16x16 bf16 -> f32": 1})
    assert regressions(made(), dot) == ["No matrix instruction, where mfma 32x32x8 bf16 -> f32 could do the products."]
    assert regressions(made(matrix={"mfma 16x16x16 bf16 -> f32": 1}), dot) == []


def test_two_compiled_kernels():
    x = torch.zeros(4096)
    wide = amd_report(kernels.add, x, x, x, 4096, BLOCK=1024)
    narrow = amd_report(kernels.add, x, x, x, 4095, BLOCK=1024)
    assert regressions(narrow, wide) == [
        "8 x 32-bit loads where 2 x 128-bit loads would do.",
        "4 x 32-bit stores where one 128-bit store would do.",
    ]
    assert regressions(wide, narrow) == []


def test_a_report_travels_as_json():
    x = torch.zeros(4096)
    report = amd_report(kernels.add, x, x, x, 4096, BLOCK=1024, grid=(4,))
    again = AmdReport.from_json(report.as_json())
    assert again == report and str(again) == str(report) and str(again.listing()) == str(report.listing())
    alone = amd_report(kernels.add, x, x, x, 4096, BLOCK=1024)
    assert AmdReport.from_json(alone.as_json()) == alone and alone.work is None
