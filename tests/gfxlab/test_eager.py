"""What PyTorch would launch is counted: operations, not views, and the bytes of what goes in and out."""

import torch

from gfxlab.tracing import eager


def test_bytes_in_and_out_of_each_operation():
    x, y = torch.ones(4, 8), torch.ones(8)
    with eager.count() as ops:
        (x + y).sum()
    assert [op.name for op in ops.operations] == ["add", "sum"]
    assert [(op.read, op.written) for op in ops.operations] == [(4 * 8 * 4 + 8 * 4, 128), (128, 4)]
    assert (ops.kernels, ops.bytes) == (2, 160 + 128 + 128 + 4)


def test_views_and_empty_memory_cost_nothing():
    x = torch.ones(4, 8)
    with eager.count() as ops:
        x.t()[1:].unsqueeze(0), torch.empty_like(x), x.expand(2, 4, 8), x.float()
    assert ops.operations == []
    with eager.count() as ops:
        torch.ones(2, 4, 8) @ torch.ones(2, 8, 4)  # its result is reshaped by aten::_unsafe_view
    assert [op.name for op in ops.operations] == ["ones", "ones", "bmm"]


def test_a_conversion_is_a_kernel_and_the_result_has_its_own_size():
    with eager.count() as ops:
        torch.ones(10, dtype=torch.bfloat16).float()
    (made, converted) = ops.operations
    assert (converted.name, converted.read, converted.written) == ("_to_copy", 20, 40)
    assert "float32 (10,)" in repr(ops) and "float32 (10,)" in ops._repr_html_()


def test_nothing_is_counted_outside_the_block():
    with eager.count() as ops:
        pass
    torch.ones(3)
    assert ops.kernels == 0


def test_of_a_table_only_the_rows_count_that_an_index_picks():
    table, rows = torch.ones(1000, 8), torch.tensor([3, 5])
    with eager.count() as ops:
        picked = table[rows]
        torch.nn.functional.embedding(rows, table)
        table[rows] = picked
    assert [(op.read, op.written) for op in ops.operations] == [(16 + 64, 64)] * 3
