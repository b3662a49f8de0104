"""A token of SmolLM2 as machine code: what it executes on simulated AMD GPUs, and the CPU seconds that this takes here.

    python -m benchmarks.machine_token [--arch gfx942 ...] [--save FILE] [--tokens 4]

A prompt of PROMPT tokens is read, then tokens are decoded, every launch by the simulator without checks or counters, on
the course's kernels.  Each token must be the one that PyTorch chooses.  Then one more token is counted: bytes, lines,
LDS.  The first call of each kernel compiles it, and both steps are made once before they are timed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from course_lab import model
from course_lab.chat import Assembly
from course_lab.model.executed import MachineCode, executing
from gfxlab import hardware

PROMPT = 20
ARCHES = ("gfx942", "gfx950", "gfx1100")
STORED = Path(__file__).parent / "results" / "machine_token.json"
_TEXT = "A compute unit of a GPU has registers, a scheduler, and memory that its waves share; so it can"


def measure(arch: str, tokens: int) -> dict:
    """Figures of one architecture.

    Raises:
        AssertionError: a token is not PyTorch's.
    """
    torch.set_num_threads(1)
    llm, assembly = model.load(torch.float32, "cpu", progress=False), Assembly(mine=False)
    prompt = llm.tokenizer.encode(_TEXT)[:PROMPT]
    assert len(prompt) == PROMPT
    expected = llm.generate(prompt, tokens, page_size=16, progress=False).tokens
    figures: dict = {"arch": arch, "prompt": PROMPT, "tokens": tokens}
    with llm.using(**assembly.functions):
        for timed in (False, True):
            cache, found, unread, seconds = llm.new_cache(PROMPT + tokens + 1, page_size=16), [], prompt, []
            for _ in range(tokens if timed else 2):
                begin = time.process_time()
                with executing(llm, arch, profile=False) as code:
                    found.append(llm.next_token(unread, cache))
                seconds.append(time.process_time() - begin)
                unread = found[-1:]
                if len(found) == 1:
                    figures["prompt_instructions"] = code.total.instructions
        assert found == expected[: len(found)], f"{arch}: {found} instead of {expected}"
        figures |= {"prompt_seconds": seconds[0], "token_seconds": min(seconds[1:]), "same_tokens": len(found)}
        with executing(llm, arch) as code:
            llm.next_token(unread, cache)
    return figures | _counted(code)


def _counted(code: MachineCode) -> dict:
    """Of one decoded token: all of it, by operation, and floors where a card has this architecture."""
    by_kind = {f"{name} ({place})": asdict(counts) for (name, place), counts in code.by_kind().items()}
    floors = code.floors(hardware.card(code.arch))
    return {"token": asdict(code.total), "operations": by_kind, "card": floors.card.name, "floors": floors.seconds}


def main() -> int:
    """Print the figures, and keep them where --save says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine_token", description=__doc__)
    parser.add_argument("--arch", nargs="+", default=ARCHES, help="of the simulated GPUs")
    parser.add_argument("--tokens", type=int, default=4, help="decoded tokens, at least 2")
    parser.add_argument("--save", help=f"a JSON file for the figures, such as {STORED}")
    options = parser.parse_args()
    figures = []
    for arch in options.arch:
        one = measure(arch, max(options.tokens, 2))
        figures.append(one)
        print(
            f"{arch}: prompt of {PROMPT} tokens {one['prompt_seconds']:.1f} s, {one['prompt_instructions']:,} wave "
            f"instructions; a token {one['token_seconds']:.2f} s, {one['token']['instructions']:,}; "
            f"{one['same_tokens']} tokens as PyTorch's",
            flush=True,
        )
    if options.save:
        machine = f"{platform.machine()}, Python {platform.python_version()}, one core, CPU seconds"
        Path(options.save).write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
