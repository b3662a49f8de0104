"""Guarded memory: poison around and inside, damage found, strides and values kept."""

import pytest
import torch

from course_lab.check.guard import MARGIN, Allocations, place, poisoned

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz]
FLOATS += [torch.float8_e5m2, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_poison_of_a_floating_type_is_nan(dtype):
    assert poisoned(3, dtype).to(torch.float32).isnan().all()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16], ids=str)
def test_poison_of_an_integer_type_is_large(dtype):
    assert (poisoned(3, dtype) > torch.iinfo(dtype).max // 2).all()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3),
        torch.arange(40).reshape(4, 10)[:, :3],
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(3.0).expand(4, 3),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.ones(5, requires_grad=True),
    ],
    ids=["matrix", "slice", "transposed", "expanded", "scalar", "empty", "bool", "grad"],
)
def test_a_placed_tensor_is_the_same_tensor(tensor):
    placed = place(tensor).tensor
    assert torch.equal(placed, tensor) and placed.stride() == tensor.stride() and placed.dtype == tensor.dtype
    assert placed.requires_grad == tensor.requires_grad and (
        placed.data_ptr() != tensor.data_ptr() or not len(placed.flatten())
    )


def test_gaps_and_margins_hold_poison():
    guarded = place(torch.zeros(4, 10)[:, :3])
    around = guarded.buffer.isnan()
    assert int((~around).sum()) == 12 and around[:MARGIN].all() and around[-MARGIN:].all()


@pytest.mark.parametrize("offset, found", [(-1, [-1]), (-MARGIN, [-MARGIN]), (7, [0]), (9, [2]), (3, [])])
def test_damage_beside_a_tensor_is_found(offset, found):
    guarded = place(torch.arange(7, dtype=torch.bfloat16))
    guarded.buffer[MARGIN + offset] = 1.0
    assert guarded.damage() == found


def test_fresh_memory_is_poison_and_filled_memory_is_filled():
    x = torch.zeros(5, dtype=torch.bfloat16)
    with Allocations() as allocations:
        fresh = [torch.empty(4), torch.empty_like(x), x.new_empty(3), torch.empty_strided((2, 2), (5, 1))]
        filled = [torch.zeros(4), torch.ones_like(x), x.new_full((3,), 7.0), torch.full((2,), 3)]
        assert torch.empty(0).numel() == 0 and torch.empty(3, device="meta").device.type == "meta"
    assert all(t.isnan().all() for t in fresh)
    assert [t[0].item() for t in filled] == [0.0, 1.0, 7.0, 3]
    assert [g.tensor.data_ptr() for g in allocations.made] == [t.data_ptr() for t in fresh + filled]
    assert not torch.empty_like(x).isnan().any() or len(allocations.made) == 8  # outside the block nothing is guarded
