"""What the compiler says about a kernel beside its code: the code object's metadata, read once, as YAML.

LLVM, "User Guide for AMDGPU Backend", code object V5 metadata.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DOCUMENT = re.compile(r"\.amdgpu_metadata\n---\n(.*?)\n\.\.\.", re.DOTALL)


class Metadata(dict):
    """The fields of a kernel, names without their dot."""

    def __missing__(self, field: str) -> Any:
        raise ValueError(f"the compiler's metadata has no field {field}; it has {', '.join(sorted(self))}")


@lru_cache(maxsize=128)
def read(asm: str) -> Metadata:
    """The metadata of the kernel in an assembly text; remembered by the text.

    Raises:
        ValueError: there are none; and for a field that is not there, when it is asked for.
    """
    found = _DOCUMENT.search(asm)
    if not found:
        raise ValueError("the assembly text has no .amdgpu_metadata")
    (kernel,) = yaml.load(found[1], _Loader)["amdhsa.kernels"]
    return Metadata({name.removeprefix("."): value for name, value in kernel.items()})
