"""`apply` takes autograd's detour exactly where somebody may ask for a gradient."""

import pytest
import torch
from torch.autograd import forward_ad

from course_kernels._torch_op import apply, torch_op


class Double(torch.autograd.Function):
    """Two outputs, as some kernels have; the second has no gradient."""

    @staticmethod
    def forward(ctx, x, note):
        ctx.save_for_backward(x)
        ctx.note = note
        y, z = 2 * x, x.clone()
        ctx.mark_non_differentiable(z)
        return y, z

    @staticmethod
    def backward(ctx, dy, _dz):
        return 2 * dy, None


def test_without_a_gradient_the_forward_pass_runs_alone(monkeypatch):
    monkeypatch.setattr(Double, "apply", lambda *_: pytest.fail("the detour was taken"))
    x = torch.ones(3)
    y, z = apply(Double, x, "note")
    assert torch.equal(y, 2 * x) and torch.equal(z, x)
    with torch.no_grad():
        assert not apply(Double, x.requires_grad_(), "note")[0].requires_grad


def test_with_a_gradient_nothing_changes():
    x = torch.ones(3, requires_grad=True)
    y, z = apply(Double, x, "note")
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0)) and not z.requires_grad


def test_forward_mode_is_refused_as_autograd_does_and_not_ignored():
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="jvp"):
        apply(Double, forward_ad.make_dual(torch.ones(3), torch.ones(3)), "note")


def test_a_tensor_that_comes_twice_is_traced_as_two(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(Double, "apply", lambda *inputs: inputs)
    for x in (torch.ones(3), torch.zeros(3)):
        first, second, note = apply(Double, x, x, "note")
        assert first is x and second is not x and second._base is x and note == "note"


def test_an_operator_is_described_where_tensors_have_no_memory():
    @torch_op(lambda x: x.new_empty(x.shape[:1]))
    def rows_of_a_test(x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)

    x = torch.ones(3, 4)
    assert torch.equal(rows_of_a_test(x), torch.full((3,), 4.0))
    y = rows_of_a_test(x.to("meta"))
    assert y.is_meta and y.shape == (3,)
