"""What the model runs on: PyTorch, the interpreter, the machine code of an AMD GPU on the simulator, a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

import gfxlab
from course_kernels import launch, use_backend
from course_lab import model
from course_lab.chat.assembly import Assembly
from course_lab.model import SmolLM2
from gfxlab import engines, hardware

ENGINES = ("torch", "interpreter", "simulator", "gpu")
LAUNCH = ("each", "graph", "compiled")
_HOW = {
    "each": "launched one by one",
    "graph": "a step recorded as a graph",
    "compiled": "a step of torch.compile's, recorded as a graph",
}


class Engine:
    """One of ENGINES; arch: the simulated GPU's architecture.

    launch: how a GPU gets the kernels of a step: "each" by Python, "graph": all at once, recorded, "compiled": what
    torch.compile makes of them, recorded.

    Raises:
        ValueError: another name, an architecture that no simulated GPU has, or no GPU here.
    """

    def __init__(self, name: str = "torch", arch: str = "gfx942", launch: str = "each") -> None:
        if name not in ENGINES:
            raise ValueError(f"there is no engine {name!r}; choose {', '.join(ENGINES[:-1])} or {ENGINES[-1]}")
        if name == "simulator":
            hardware.card(arch)
        if name == "gpu" and engines.gpu() is None:
            raise ValueError("there is no GPU here that Triton can use; choose torch, interpreter or simulator")
        if launch not in LAUNCH:
            raise ValueError(f"launch is {launch!r}; choose {', '.join(LAUNCH[:-1])} or {LAUNCH[-1]}")
        if launch != "each" and name != "gpu":
            raise ValueError(f"the engine {name} launches each kernel; {launch} needs a GPU: take --engine gpu")
        self.name, self.arch, self.launch, self.launches = name, arch, launch, 0

    @property
    def runs_kernels(self) -> bool:
        """Whether Triton kernels run: on `torch` none does."""
        return self.name != "torch"

    def load(self, *, progress: bool = True) -> SmolLM2:
        """The model where this engine finds it: float32 on the CPU, bfloat16 on a GPU."""
        if self.name == "gpu":
            return model.load(torch.bfloat16, "cuda", progress=progress)
        return model.load(torch.float32, "cpu", progress=progress)

    @contextlib.contextmanager
    def running(self, llm: SmolLM2, assembly: Assembly) -> Iterator[None]:
        """Run the model on this engine inside the block; `launches` grows by those made."""
        if not self.runs_kernels:
            yield
            return
        with self._launching(), use_backend("triton"), llm.using(**assembly.functions):
            yield

    @contextlib.contextmanager
    def _launching(self) -> Iterator[None]:
        if self.name == "simulator":
            with gfxlab.using(self.arch, checks=False, quiet=True) as runs:
                yield
            self.launches += len(runs)
            return
        if self.name == "gpu":
            yield
            return
        gfxlab.enable()
        before = engines.launches()
        with launch.few_programs():
            yield
        self.launches += engines.launches() - before

    def __str__(self) -> str:
        if self.name == "simulator":
            return f"the machine code of {hardware.card(self.arch).name} ({self.arch}), executed by this CPU"
        if self.name == "gpu":
            return f"{engines.gpu().name}, {_HOW[self.launch]}"
        return {"torch": "PyTorch on this CPU", "interpreter": "Triton's interpreter on this CPU"}[self.name]
