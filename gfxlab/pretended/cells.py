"""One step of an LSTM and of a GRU in one operation each, which PyTorch asks of a GPU and has no code for on the CPU.

Source of the formulas: the documentation of torch.nn.LSTM and torch.nn.GRU; gates stand in PyTorch's order.
"""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def install(aten: torch.library.Library) -> None:
    """Register the four operations for the device."""
    aten.impl("_thnn_fused_lstm_cell", _lstm, "CUDA")
    aten.impl("_thnn_fused_lstm_cell_backward_impl", _lstm_backward, "CUDA")
    aten.impl("_thnn_fused_gru_cell", _gru, "CUDA")
    aten.impl("_thnn_fused_gru_cell_backward", _gru_backward, "CUDA")


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


def _lstm(input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias=None, hidden_bias=None):
    """Gates [batch, 4 * hidden]: input, forget, cell, output. Returns h, c and the gates after their functions."""
    i, f, g, o = (_biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * cx + i * g
    return o * c.tanh(), c, torch.cat([i, f, g, o], 1)


def _lstm_backward(grad_h: Tensor | None, grad_c: Tensor | None, cx: Tensor, c: Tensor, gates: Tensor, biased: bool):
    i, f, g, o = gates.chunk(4, 1)
    turned = c.tanh()
    grad_h = torch.zeros_like(c) if grad_h is None else grad_h
    grad_c = grad_h * o * (1 - turned * turned) + (0 if grad_c is None else grad_c)
    grads = (
        grad_c * g * i * (1 - i),
        grad_c * cx * f * (1 - f),
        grad_c * i * (1 - g * g),
        grad_h * turned * o * (1 - o),
    )
    joined = torch.cat(grads, 1)
    return joined, grad_c * f, joined.sum(0) if biased else joined.new_empty(0)


def _gru(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias=None, hidden_bias=None):
    """Gates [batch, 3 * hidden]: reset, update, new. Returns h, and what backward needs: [batch, 5 * hidden]."""
    ir, iz, new = _biased(input_gates, input_bias).chunk(3, 1)
    hr, hz, hn = _biased(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (new + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], 1)


def _gru_backward(grad: Tensor, kept: Tensor, biased: bool):
    r, z, n, hx, hn = kept.chunk(5, 1)
    grad_n = grad * (1 - z) * (1 - n * n)
    grad_z = grad * (hx - n) * z * (1 - z)
    grad_r = grad_n * hn * r * (1 - r)
    of_input, of_hidden = torch.cat([grad_r, grad_z, grad_n], 1), torch.cat([grad_r, grad_z, grad_n * r], 1)
    sums = (of_input.sum(0), of_hidden.sum(0)) if biased else (grad.new_empty(0), grad.new_empty(0))
    return of_input, of_hidden, grad * z, *sums
