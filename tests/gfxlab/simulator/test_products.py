"""Every dense matrix instruction of every target, with all modifiers that mean something to it, by its definition.

`make test` takes a sample; `make test-simulator` all of them (`oracle/products.py` says what is compared).
"""

import random

import numpy as np
import pytest
from one_instruction import execute
from oracle import assembler, products

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
NUMBER = {"gfx90a": 255, "gfx942": 276, "gfx950": 404, "gfx1100": 38, "gfx1201": 48}


def every_form(arch: str) -> list[products.Product]:
    return [form for one in products.instructions(arch) for form in products.forms(one)]


def disagreements(forms: list[products.Product], seed: int) -> list[str]:
    chance = np.random.default_rng(seed)
    return [line for form in forms for line in form.run(execute, chance)]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_sample_of_matrix_instructions(arch):
    forms = every_form(arch)
    assert len(forms) == NUMBER[arch]
    assert not disagreements(random.Random(arch).sample(forms, 12), 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("arch", ARCHS)
def test_all_matrix_instructions(arch, seed):
    wrong = disagreements(every_form(arch), seed)
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("name", ["f64_16x16x4_f64", "f64_4x4x4_4b_f64", "f32_4x4x1_16b_f32", "f32_16x16x4_f32"])
def test_lent_lanes_signs_and_idle_lanes(name):
    """Lanes that are off take part; B may be lent by other lanes; float64 has signs instead."""
    (one,) = [one for one in products.instructions("gfx942") if one.name.endswith(name)]
    assert not disagreements(products.forms(one), 3)


@pytest.mark.slow
@pytest.mark.skipif(not assembler.program(), reason="no llvm-mc of LLVM 19 or later is installed")
@pytest.mark.parametrize("arch", ARCHS)
def test_no_matrix_instruction_of_a_target_is_missing(arch):
    """LLVM is asked for every combination of result, shape, blocks and type."""
    tried = products.candidates(arch)
    texts = assembler.canonical([one.text() for one in tried], arch)
    found = {products.plain(one.name) for one, text in zip(tried, texts) if text}
    known = {products.plain(one.name) for one in products.instructions(arch) if "f8f6f4" not in one.name}
    assert found == known
