"""One decorated kernel, two uses, one process: interpreted on CPU tensors, compiled for AMD.

`@triton.jit` makes a `JITFunction`.  After `enable()`, launching it on CPU tensors runs an interpreted twin made from
the same Python function; launching it on GPU tensors goes to the GPU as ever.  No environment variable is set, so the
same object can also be compiled for any AMD architecture (`specialise`, `compile`), which a process that was started
with `TRITON_INTERPRET=1` cannot do: there `tl.sum` and its kin are themselves interpreted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import triton_key
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, create_function_from_signature

from gfxlab import hardware
from gfxlab.bound import Launch, Specialisation, bind
from gfxlab.engine import hooks

_enabled = False
_cpu_launcher: Callable[[Launch], Any] | None = None
_gpu_launches: list[Launch] | None = None
_tunes = False
_ENV_INTERPRET = isinstance(tl.sum, InterpretedFunction)  # the variable as it was when triton was imported
_stock_run, _stock_call = JITFunction.run, JITFunction.__call__
_stock_bench = Autotuner._bench


def env_interpret() -> bool:
    """True when this process was started with TRITON_INTERPRET=1: kernels are interpreted and cannot be compiled."""
    return _ENV_INTERPRET


def is_interpreting() -> bool:
    """True when kernels launched on CPU tensors run, by `enable()` or by the user's own TRITON_INTERPRET=1."""
    return _enabled or _ENV_INTERPRET


def enable() -> None:
    """Interpret launches on CPU tensors, with the guard of `hooks`; calling it again does nothing.

    Raises:
        RuntimeError: TRITON_INTERPRET was set after triton was imported, so only half of Triton would obey it.
    """
    global _enabled
    if bool(triton.knobs.runtime.interpret) != _ENV_INTERPRET:
        raise RuntimeError(
            "TRITON_INTERPRET was changed after triton was imported. Restart the kernel; then either set it before the "
            "first import or, better, leave it alone: the course interprets CPU tensors by itself."
        )
    hooks.install()
    JITFunction.run, JITFunction.__call__ = _run, _device_call
    if Autotuner._bench is _stock_bench:  # else somebody measures the tuners' calls now, and goes on
        Autotuner._bench = _bench
    _enabled = True


def disable() -> None:
    """Give launches back to Triton."""
    global _enabled
    JITFunction.run, JITFunction.__call__ = _stock_run, _stock_call
    if Autotuner._bench is _bench:
        Autotuner._bench = _stock_bench
    _enabled = False


@cache
def _interpreted(fn) -> InterpretedFunction:
    # keyed by the Python function: hashing a JITFunction would walk all it depends on
    return InterpretedFunction(fn)


@contextlib.contextmanager
def cpu_launches_by(launcher: Callable[[Launch], Any]) -> Iterator[None]:
    """Inside the block, launches on CPU tensors go to `launcher`, not to the interpreter.

    Raises:
        RuntimeError: this process runs under TRITON_INTERPRET=1, where every kernel is interpreted from its decoration.
    """
    global _cpu_launcher
    if _ENV_INTERPRET:
        raise RuntimeError("a process started with TRITON_INTERPRET=1 interprets every launch; start it without")
    before, was_enabled = _cpu_launcher, _enabled
    enable()
    _cpu_launcher = launcher
    try:
        yield
    finally:
        _cpu_launcher = before
        if not was_enabled:
            disable()


@contextlib.contextmanager
def launches_by_triton() -> Iterator[None]:
    """Inside the block, Triton launches by itself on whatever its active driver is, CPU tensors or not."""
    was_enabled = _enabled
    disable()
    try:
        yield
    finally:
        if was_enabled:
            enable()


@contextlib.contextmanager
def gpu_launches() -> Iterator[list[Launch]]:
    """The launches inside the block that go to a GPU, where `hooks` does not see them; the list grows by one each."""
    global _gpu_launches
    before, _gpu_launches = _gpu_launches, []
    try:
        yield _gpu_launches
    finally:
        _gpu_launches = before


def interpret(launch: Launch) -> None:
    """Interpret a launch whose tensors are on the CPU, whoever else takes launches now; after `enable()`."""
    positional, keywords = launch.positional, launch.keywords
    with _floats_are_scalars():
        _interpreted(launch.fn).run(*positional, grid=launch.grid, warmup=False, **keywords)


@contextlib.contextmanager
def _floats_are_scalars() -> Iterator[None]:
    """Give a kernel its float arguments as float32 scalars, which have `.to`, as the compiler does; Triton's
    interpreter hands Python's floats on."""
    stock = interpreter._implicit_cvt

    def convert(argument: Any) -> Any:
        if type(argument) is not float:
            return stock(argument)
        handle = interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32)
        return tl.core.tensor(handle, tl.float32)

    interpreter._implicit_cvt = convert
    try:
        yield
    finally:
        interpreter._implicit_cvt = stock


@contextlib.contextmanager
def tuning() -> Iterator[None]:
    """Let @triton.autotune run each configuration once, as on a GPU, where its runs leave in memory what they do."""
    global _tunes
    before, _tunes = _tunes, True
    try:
        yield
    finally:
        _tunes = before


def _bench(self, *args, config, **meta):
    """Time one configuration for @triton.autotune. On a CPU there is nothing to time: the first one is taken.

    A `do_bench` of the caller's own is asked all the same: it may measure something else than time.
    """
    if not _belongs_on_cpu(args, meta) or _has_own_measure(self):
        return _stock_bench(self, *args, config=config, **meta)
    if not _tunes:
        return [0.0, 0.0, 0.0]
    known = vars(self).pop("do_bench", None)  # a cached property in some versions of Triton
    self.do_bench = _once
    try:
        return _stock_bench(self, *args, config=config, **meta)
    finally:
        vars(self).pop("do_bench")
        if known is not None:
            self.do_bench = known


def _once(run: Callable[[], Any], **_: Any) -> list[float]:
    run()
    return [0.0, 0.0, 0.0]


def _has_own_measure(tuner: Autotuner) -> bool:
    """`warmup`, `rep` and `use_cuda_graph` only set how Triton's own stopwatch, which needs a GPU, is used."""
    stock = tuner.num_warmups is not None or tuner.num_reps is not None or tuner.use_cuda_graph
    return tuner._do_bench is not None and not stock


def _run(self, *args, grid, warmup, **kwargs):
    if warmup or not _belongs_on_cpu(args, kwargs):
        if _gpu_launches is not None and not warmup:
            _gpu_launches.append(bind(self, args, kwargs, grid))
        return _stock_run(self, *args, grid=grid, warmup=warmup, **kwargs)
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    if _cpu_launcher:
        return _cpu_launcher(bind(self, args, kwargs, grid))
    return _interpreted(self.fn).run(*args, grid=_as_tuple(grid), warmup=False, **kwargs)


def _as_tuple(grid):
    """The stock interpreter adds to a grid as to a tuple; the launcher of a GPU takes a list as well."""
    if callable(grid):
        return lambda args: _as_tuple(grid(args))
    return tuple(grid) if isinstance(grid, list) else grid


def _belongs_on_cpu(args: tuple, kwargs: dict) -> bool:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    if not tensors:
        return not torch.cuda.is_available()
    return all(t.device.type == "cpu" for t in tensors)


def _device_call(self, *args, **kwargs):
    """A device function (or `tl.sum`, `tl.zeros`, ...) called from a kernel that is being interpreted."""
    if not hooks.is_launching():
        return _stock_call(self, *args, **kwargs)
    return _interpreted(self.fn)(*args, **kwargs)


# ---- compiling -----------------------------------------------------------------------------------------------------


def warm_up() -> None:
    """Hash Triton's own files, which the first compilation of a process does (0.3 s); children of a fork inherit it."""
    triton_key()


def target(arch: str) -> GPUTarget:
    """The compile target for an AMD architecture such as "gfx942"."""
    return GPUTarget("hip", arch, hardware.wave_size(arch))


def _jit_function(kernel) -> JITFunction:
    """The JITFunction under autotune and heuristics; of an interpreted kernel or a plain function, what it would be."""
    while not isinstance(kernel, (JITFunction, InterpretedFunction)) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if isinstance(kernel, InterpretedFunction):
        return JITFunction(kernel.fn, **kernel.kwargs)
    return kernel if isinstance(kernel, JITFunction) else JITFunction(kernel)


def specialise(kernel, args: tuple = (), kwargs: dict[str, Any] | None = None, arch: str = "gfx942") -> Specialisation:
    """What Triton's launcher would compile `kernel[grid](*args, **kwargs)` for, found by the launcher's own code.

    Tensors may be on any device: dtype, 16-byte alignment and storage under 2 GiB count; integers that are 1 become
    constants and multiples of 16 are marked. Options such as num_warps may be among the keyword arguments.
    """
    fn = _jit_function(kernel)
    backend = make_backend(target(arch))
    kwargs = {"debug": False, "enable_fp_fusion": True, **(kwargs or {})}  # 3.9 warns unless fusion is chosen
    binder = create_function_from_signature(fn.signature, fn.params, backend)
    bound, specialization, options = binder(*args, **kwargs)
    parsed, signature, constexprs, attrs = fn._pack_args(backend, kwargs, bound, specialization, options)
    # a parameter called num_warps that is given by name is an option as well
    return Specialisation(signature, constexprs, attrs, {k: v for k, v in kwargs.items() if k in vars(parsed)})


def compile(kernel, spec: Specialisation, arch: str = "gfx942", *, quiet: bool = False, **options):
    """Compile `kernel` for an AMD architecture, with no GPU; returns Triton's CompiledKernel (`.asm`, `.metadata`).

    quiet: leave out what the kernel prints.

    Raises:
        RuntimeError: this process runs under TRITON_INTERPRET=1.
    """
    if _ENV_INTERPRET:
        raise RuntimeError("a process started with TRITON_INTERPRET=1 cannot compile; unset it, or compile in a worker")
    source = ASTSource(fn=_jit_function(kernel), signature=spec.signature, constexprs=spec.constexprs, attrs=spec.attrs)
    silence = _without_prints() if quiet and _may_print(source.fn) else contextlib.nullcontext()
    with silence:
        return triton.compile(source, target=target(arch), options={**spec.options, **options} or None)


def _may_print(fn: JITFunction) -> bool:
    """Whether the source of the kernel, or of a function that it can call, has a print in it."""
    functions = [fn, *(value for value in fn.fn.__globals__.values() if isinstance(value, JITFunction))]
    return any("print" in function.src for function in functions)


@contextlib.contextmanager
def _without_prints() -> Iterator[None]:
    """Compile `print` to nothing; Triton's cache, which knows only the source, is another one meanwhile."""
    stock, folder = TritonSemantic.device_print, triton.knobs.cache.dir
    TritonSemantic.device_print = lambda *_, **__: None
    triton.knobs.cache.dir = f"{folder}-quiet"
    try:
        yield
    finally:
        TritonSemantic.device_print, triton.knobs.cache.dir = stock, folder
