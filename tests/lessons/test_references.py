"""The formulas that only exercises use, compared with PyTorch's own functions."""

import torch

from course_lessons.l06_attention import reference


def test_attention_and_its_query_gradient_agree_with_pytorch():
    generator = torch.Generator().manual_seed(0)
    q, k, v, do = (torch.randn(n, 16, generator=generator, dtype=torch.float64) for n in (9, 13, 13, 9))
    q.requires_grad_()
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    o.backward(do)
    torch.testing.assert_close(reference.head_attention(q, k, v), o)
    lse = reference.row_logsumexp(q @ k.T / 4)
    dq = reference.query_gradient(q.detach(), k, v, o.detach(), lse, do)
    torch.testing.assert_close(dq, q.grad, atol=1e-6, rtol=1e-6)  # lse has float32's digits


def test_a_window_of_keys_for_each_query_alone():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 16, generator=generator, dtype=torch.float64) for n in (9, 6, 6))
    o = reference.window_attention(q, k, v, 2)
    assert torch.equal(o[:3], torch.zeros_like(o[:3]))  # the last query sees the last key
    for i in range(3, 9):
        seen = slice(max(i - 3 - 1, 0), i - 3 + 1)
        torch.testing.assert_close(o[i : i + 1], reference.head_attention(q[i : i + 1], k[seen], v[seen]))
