"""`apply` takes autograd's detour exactly where somebody may ask for a gradient."""

import pytest
import torch
from torch.autograd import forward_ad

from course_kernels._torch_op import apply


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
