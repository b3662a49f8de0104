"""Which copy to compare with: `python -m benchmarks.copies`, half a minute on a GPU.

The same bytes, copied by `copy_` (the driver's memcpy) and by an elementwise kernel of PyTorch, each launched and
captured in a graph, alone and ten in a row; and what the profiler calls that which the GPU did.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from course_lab import bench

MIB = 1 << 20
SIZES = (64, 128, 256, 384, 512, 768, 1024, 2048)  # MiB read and written
WAYS = ("launched", "captured", "ten captured")


def calls(size: int) -> dict[str, Callable[[], object]]:
    """Two copies that move `size` bytes in all."""
    source = torch.empty(size // 2, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    wide = source.view(torch.int32), target.view(torch.int32)
    return {"copy_": lambda: target.copy_(source), "kernel": lambda: torch.add(wide[0], 1, out=wide[1])}


def graph_of(call: Callable[[], object], times: int) -> Callable[[], None]:
    """The replay of so many calls."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    return graph.replay


def bandwidth(call: Callable[[], object], way: str, size: int) -> float:
    """TB/s, each copy alone with the caches cleared before it, or ten in a row."""
    times = 10 if way == "ten captured" else 1
    function = call if way == "launched" else graph_of(call, times)
    return times * size / bench.time(function, repeat=0.05).seconds / 1e12


def names_of_work(function: Callable[[], object]) -> str:
    """What the profiler saw on the GPU."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        function()
        torch.cuda.synchronize()
    found = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return ", ".join(f"{event.name[:60]} {event.device_time:.0f} us" for event in found) or "nothing"


def main() -> int:
    """Print both tables; without a GPU say so."""
    try:
        machine = bench.Machine.here()
    except bench.NothingToTime as refusal:
        print(refusal)
        return 0
    print(machine.gpu, machine.driver, "TB/s read and written")
    for mib in SIZES:
        for name, call in calls(mib * MIB).items():
            rates = (f"{way} {bandwidth(call, way, mib * MIB):.2f}" for way in WAYS)
            print(f"{mib:5} MiB  {name:7}", "  ".join(rates), flush=True)
            if mib in (256, 1024):
                print("     launched:", names_of_work(call), "| captured:", names_of_work(graph_of(call, 1)))
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
