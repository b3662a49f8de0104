"""`%%amd`: run a cell that defines and launches a kernel, and show what becomes of the kernel on an AMD GPU."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from gfxlab import hardware
from gfxlab.code.card import compare
from gfxlab.code.errors import AmdError
from gfxlab.code.of_launches import launched
from gfxlab.code.report import AmdReport

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_shown: dict[str, AmdReport] = {}  # of this notebook: kernel -> its report when it was last shown


def _usage_error(sentence: str) -> Exception:
    """What IPython shows as one line, without a traceback. Who runs a magic has IPython; gfxlab asks for none."""
    from IPython.core.error import UsageError

    return UsageError(sentence)


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _usage_error(f"%%amd: {message}. {' '.join(self.format_usage().split())}")


_OPTIONS = _Options("%%amd", add_help=False)
_OPTIONS.add_argument("kernel", nargs="?", default="")
_OPTIONS.add_argument("--arch", default="gfx942", choices=tuple(hardware.LIMITS))
_OPTIONS.add_argument("--listing", default="line", choices=("line", "address", "no"))
_OPTIONS.add_argument("--against", default="", metavar="ARCH or KERNEL")
_OPTIONS.add_argument("--count", action="store_true")


def amd_cell(shell: InteractiveShell, line: str, cell: str) -> None:
    """%%amd [KERNEL] [--arch gfx942] [--listing line|address|no] [--against ARCH or KERNEL] [--count]

    Runs the cell, then shows the card of the first kernel that it launched (or of KERNEL) and the annotated listing.
    --against gfx1100 puts the same launch on another architecture beside it; --against other_kernel puts a kernel
    beside it that this cell launched too or an earlier `%%amd` showed; a variable may hold an AmdReport of yours.
    --count runs the launch on the simulator to count its FLOPs and bytes.
    """
    from IPython.display import display

    options = _OPTIONS.parse_args(shlex.split(line, comments=True))
    with launched() as found:
        result = shell.run_cell(f"# %%amd {line}\n{cell}")  # the comment keeps the lines' numbers those of the cell
    if not result.success:
        raise _usage_error("%%amd: the cell failed, as shown above, so there is nothing to report.")
    launch = found.kernels().get(options.kernel) if options.kernel else next(iter(found.kernels().values()), None)
    if launch is None:
        instead = f"It launches {', '.join(found.kernels())}." if found.kernels() else "Launch it in the same cell."
        raise _usage_error(f"%%amd: this cell launches no {options.kernel or 'kernel'}. {instead}")
    try:
        report = launch.amd_report(options.arch, count=options.count)
        other = _other(shell, found, launch, options)
    except AmdError as error:
        raise _usage_error(str(error)) from None
    _shown[report.name] = report
    display(compare(other, report) if other else report)
    if options.listing != "no":
        display(report.listing(by=options.listing))


def _other(shell: InteractiveShell, found: Any, launch: Any, options: argparse.Namespace) -> AmdReport | None:
    """What stands beside the report."""
    name = options.against
    if not name:
        return None
    if name in hardware.LIMITS:
        return launch.amd_report(name, count=options.count)
    if name in found.kernels():
        return found.kernels()[name].amd_report(options.arch, count=options.count)
    known = {**_shown, **{key: value for key, value in shell.user_ns.items() if isinstance(value, AmdReport)}}
    if name not in known:
        raise _usage_error(
            f"%%amd: --against takes an architecture ({', '.join(hardware.LIMITS)}) or a kernel that this cell "
            f"launches or an earlier %%amd has shown ({', '.join(known) or 'none yet'}); got {name}."
        )
    return known[name]
