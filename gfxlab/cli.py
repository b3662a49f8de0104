"""The command `gfxlab`: what the kernels that a file launches become, touch and do on an AMD GPU.

Each subcommand imports its part only when it runs, so that `gfxlab --help` loads neither torch nor triton.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from gfxlab.code import AmdReport
    from gfxlab.tracing import TracedLaunch

app = typer.Typer(
    help="What a Triton kernel does on AMD GPUs, found out on any machine.",
    epilog="Examples: gfxlab run train.py | gfxlab review my_kernels.py:my_kernel | gfxlab COMMAND --help",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_WrongWords = typer.BadParameter.__base__  # Click's UsageError, which newer Typers bring along under another name

Arch = Annotated[str, typer.Option(help="The GPU's architecture: gfx942, gfx950, gfx1100, gfx1201 ...")]
Target = Annotated[str, typer.Argument(help="A Python file that launches the kernel.", metavar="FILE[:KERNEL]")]


Given = Annotated[
    list[str] | None,
    typer.Argument(
        help="What the script is given; options of its own stand after --.", metavar="[ARGS]...", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def _print_json(found: object) -> None:
    import json

    print(json.dumps(found, indent=2))


@contextlib.contextmanager
def _output_is_ours(wanted: bool) -> Iterator[None]:
    """What a script and its children print goes to the error stream meanwhile: the output is data."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)


def main() -> None:
    """Run `gfxlab`. What the user can mend is told in one line on the error stream, with exit status 2.

    Status 1 is kept for what a command found: a launch that did what it may not, a review with hazards.
    """
    warnings.filterwarnings("ignore", "TRITON_DEFAULT_FP_FUSION")  # Triton's own setting, nothing of the user's
    try:
        run_command(app, "gfxlab")
    except ImportError as error:
        _stop(str(error), 1)
    except Exception as error:
        if not is_for_the_user(error):
            raise
        _stop(str(error), 1 if _was_found(error) else 2)


def run_command(app: typer.Typer, name: str) -> NoReturn:
    """Run a command line; words that it does not know end in a sentence, with exit status 2, and so do files.

    Raises:
        Exception: whatever the command raises otherwise.
    """
    try:
        status = app(standalone_mode=False)
    except _WrongWords as error:
        sentence = " ".join(error.format_message().rstrip(".").split())
        if sentence:  # without one no word was given at all, and the help has been printed
            asked = error.ctx.command_path if error.ctx else name
            print(f"{name}: {sentence}. `{asked} --help` says what it takes.", file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.Abort:  # Ctrl-C
        print(f"{name}: stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"{name}: {error.filename}: {error.strerror}.", file=sys.stderr)
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


def _stop(sentence: str, status: int = 2) -> NoReturn:
    print(f"gfxlab: {sentence}", file=sys.stderr)
    sys.exit(status)


def _was_found(error: Exception) -> bool:
    """Whether it is about what a launch did, and not about what could not be run at all."""
    from gfxlab.engine.hooks import OutOfBoundsError
    from gfxlab.simulator import SimulationError

    return isinstance(error, OutOfBoundsError | SimulationError)


def is_for_the_user(error: Exception) -> bool:
    """True for what guard, compiler or simulator say about a kernel; without Triton there is none of them."""
    try:
        from gfxlab.code import AmdError
        from gfxlab.engine.hooks import OutOfBoundsError
        from gfxlab.pretended import CannotPretend
        from gfxlab.simulator import SimulationError
        from gfxlab.simulator.show.script import ScriptError
    except ImportError:
        return False
    return isinstance(error, AmdError | OutOfBoundsError | SimulationError | ScriptError | CannotPretend)


def known(arch: str) -> str:
    """`arch` itself; ends the command with a sentence when it is not in the table of architectures."""
    from gfxlab import hardware

    if arch not in hardware.LIMITS:
        _stop(f"--arch {arch} is unknown: use one of {', '.join(hardware.LIMITS)}.")
    return arch


def unwritable(path: Path, option: str) -> str | None:
    """A sentence when a file cannot be written there, so that it is said before the work and not after it."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"{option} {path}: there is no folder {folder}."
    if path.is_dir():
        return f"{option} {path} is a folder: name a file in it."
    existed = path.exists()
    try:
        path.open("a").close()  # more than permissions: a folder such as /proc takes no file
    except OSError as error:
        return f"{option} {path}: you may not write there ({error.strerror})."
    if not existed:
        path.unlink()
    return None


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"gfxlab {metadata.version('gfxlab')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before the subcommand."""


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Examples: gfxlab run train.py --steps 2 | gfxlab run --arch gfx1100 -m pytest tests | "
    "gfxlab run --bench-limit 10 benchmark.py",
)
def run(
    arguments: Annotated[list[str], typer.Argument(help="A script and what it is given.", metavar="FILE [ARGS]...")],
    arch: Arch = "gfx942",
    module: Annotated[bool, typer.Option("-m", help="FILE is a module's name, as for python -m.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print counts and hazards as JSON; FILE prints to the error stream then."),
    ] = False,
    bench_limit: Annotated[
        float | None,
        typer.Option(
            help="Processor time for what a benchmark does besides measuring; then it only counts. "
            "60 for a row of a perf_report; if given, it ends Proton's sessions as well.",
            metavar="SECONDS",
            min=0,
            show_default=False,
        ),
    ] = None,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where the script raised, as Python does.")
    ] = False,
) -> None:
    """Run a script that was written for a GPU, unmodified, on a pretended AMD GPU.

    "cuda" is that GPU: PyTorch's operations run on the CPU, Triton's kernels as its machine code. What a launch does
    wrong is a warning. The exit status is the script's.
    """
    from gfxlab.pretended import running
    from gfxlab.simulator.show.script import ScriptError

    known(arch)
    first, *others = arguments
    try:
        with _output_is_ours(as_json):
            if module:
                ran = running.run_module(first, others, arch, bench_limit)
            else:
                ran = running.run_script(Path(first), others, arch, bench_limit)
    except Exception as error:
        if traceback and error.__cause__ is not None:
            raise error.__cause__ from None
        if not is_for_the_user(error):
            raise
        _stop(str(error), 2 if isinstance(error, ScriptError) and error.__cause__ is None else 1)
    print(f"gfxlab: {ran}", file=sys.stderr)
    if as_json:
        _print_json(ran.as_json())
    raise typer.Exit(ran.status)


@app.command(
    epilog="Examples: gfxlab report my_kernels.py:add_kernel --arch gfx1100 | gfxlab report f.py --against gfx950"
)
def report(
    target: Target,
    given: Given = None,
    arch: Arch = "gfx942",
    against: Annotated[
        str, typer.Option(help="Another architecture, or another kernel of FILE, side by side.", metavar="ARCH|KERNEL")
    ] = "",
    listing: Annotated[
        bool, typer.Option("--listing", help="Also the machine code beside the kernel's lines.")
    ] = False,
    count: Annotated[bool, typer.Option("--count", help="Count FLOPs and bytes on the simulator: slower.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run FILE as a script, and show what the kernels that it launches become on an AMD GPU."""
    from gfxlab import data, hardware
    from gfxlab.pretended import reports
    from gfxlab.simulator.show import script

    path, kernel = script.split(target)
    known(arch)
    with _output_is_ours(as_json):
        found = reports.of_file(path, arch, count, given or ())
    chosen = {name: one for name, one in found.items() if kernel in ("", name)}
    if not chosen:
        raise script.not_launched(path, kernel, set(found))
    with _output_is_ours(as_json):
        elsewhere = reports.of_file(path, against, count, given or ()) if against in hardware.LIMITS else {}
    beside = found.get(against)
    if against and not elsewhere and not beside:
        _stop(f"--against {against} is neither an architecture nor a kernel that {path.name} launches.")
    if as_json:
        others = [elsewhere.get(name) or beside for name in chosen]
        _print_json([data.of_report(one) for one in (*chosen.values(), *filter(None, others))])
        return
    for name, one in chosen.items():
        _show(one, elsewhere.get(name) or beside, listing)


def _show(report: AmdReport, other: AmdReport | None, listing: bool) -> None:
    from gfxlab.code import compare

    print(compare(report, other) if other else report)
    if listing:
        print(f"\n{report.listing()}")


@app.command(epilog="Example: gfxlab simulate my_kernels.py:add_kernel --arch gfx1100")
def simulate(target: Target, given: Given = None, arch: Arch = "gfx942", as_json: AsJson = False) -> None:
    """Run FILE as a script, and every kernel that it launches on a simulated AMD GPU.

    The file brings the arguments: make tensors on the CPU or on "cuda", launch the kernel, compare the result if you
    like. KERNEL picks the launches that are reported: instructions, bytes, cache lines, banks of LDS, by line of the
    kernel. An access out of bounds or an endless loop ends the run with a sentence. Exit status 1 when a launch did
    what it may not.
    """
    from gfxlab import data
    from gfxlab.pretended import evidence

    with _output_is_ours(as_json):
        runs = evidence.of_file(target, known(arch), arguments=given or (), profile=True)
    if as_json:
        _print_json([data.of_run(run) for run in runs])
    else:
        print("\n\n".join(map(str, runs)))
    raise typer.Exit(int(any(run.wrong for run in runs)))


@app.command(epilog="Example: gfxlab trace my_kernels.py --html trace.html")
def trace(
    target: Target,
    given: Given = None,
    arch: Arch = "gfx942",
    html: Annotated[Path | None, typer.Option(help="Also write ledgers and pictures into this HTML file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run FILE as a script, and tell what the kernels that it launches read and wrote, on a simulated AMD GPU.

    For the first launch of each kernel: bytes against the least possible, elements that two programs store, elements
    that none stores. An access out of bounds ends the run with a sentence.
    """
    from gfxlab import data
    from gfxlab.pretended import evidence
    from gfxlab.tracing.simulated import Tracer

    known(arch)
    if html and (problem := unwritable(html, "--html")):
        _stop(problem)
    tracer = Tracer()
    firsts = evidence.Firsts(tracer)
    with _output_is_ours(as_json):
        evidence.of_file(target, arch, firsts, given or ())
    if as_json:
        _print_json([data.of_ledger(launch.name, launch.ledger()) for launch in tracer.launches])
    else:
        for launch in tracer.launches:
            more = firsts.more.get(launch.name, 0)
            print(launch.ledger())
            if more:
                print(f"  ({more} more launch{'' if more == 1 else 'es'} of {launch.name})")
    if html:
        html.write_text(_as_html(Path(target.partition(":")[0]).name, tracer.launches), encoding="utf-8")
        print(f"Ledgers and pictures: {html}", file=sys.stderr if as_json else sys.stdout)


@app.command(
    epilog="Examples: gfxlab review my_kernels.py:add_kernel | gfxlab review f.py --at N=2**31 --html review.html"
)
def review(
    target: Target,
    given: Given = None,
    arch: Arch = "gfx942",
    at: Annotated[
        list[str] | None, typer.Option(help="A size at which offsets may overflow; several times.", metavar="NAME=SIZE")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the page into this HTML file.")] = None,
    fail_on: Annotated[str, typer.Option(help="What makes the exit status 1: hazards, costs or nothing.")] = "hazards",
    as_json: AsJson = False,
) -> None:
    """Run FILE as a script, and say on one page what is wrong with its kernels and what they cost.

    Hazards first, worst first: out of bounds, races, masked lanes that leak, results that depend on the order of
    programs, reads of what nobody wrote, offsets that overflow, and where interpreter and machine code differ. Then
    costs: uncoalesced and narrow accesses, bank conflicts, spills, occupancy, idle lanes. Exit status 1 with hazards.
    """
    from gfxlab.review import overflow, page, reviewing

    known(arch)
    if fail_on not in ("hazards", "costs", "nothing"):
        _stop(f"--fail-on {fail_on} is unknown: use hazards, costs or nothing.")
    if html and (problem := unwritable(html, "--html")):
        _stop(problem)
    try:
        sizes = overflow.sizes_of(at or [])
    except ValueError as error:
        _stop(str(error))
    with _output_is_ours(as_json):
        found = reviewing.review(target, arch, sizes, given or ())
    unknown = sizes.keys() - found.parameters
    if unknown:
        _stop(f"--at {min(unknown)}: no kernel that was reviewed has a parameter of this name.")
    if as_json:
        _print_json(found.as_json())
    else:
        print(page.text(found))
    if html:
        html.write_text(page.html(found), encoding="utf-8")
        print(f"Review: {html}", file=sys.stderr if as_json else sys.stdout)
    bad = {"hazards": found.hazards, "costs": found.hazards + found.costs, "nothing": []}[fail_on]
    raise typer.Exit(int(bool(bad)))


@app.command(epilog="Example: gfxlab counters my_kernels.py:add_kernel --json > counters.json")
def counters(
    target: Target,
    given: Given = None,
    arch: Arch = "gfx942",
    explain: Annotated[bool, typer.Option("--explain", help="Also AMD's definitions, and where ours differs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run FILE as a script, and count what its kernels execute under the names of AMD's profiler.

    Of the first launch of each kernel. Where there are an AMD GPU and rocprofv3, the hardware's counts stand beside.
    """
    from gfxlab.counters import report as counted
    from gfxlab.pretended import counts

    with _output_is_ours(as_json):
        found = counts.of_file(target, known(arch), given or ())
    if as_json:
        _print_json({"kernels": [one.as_json() for one in found], "definitions": counted.definitions()})
        return
    print("\n\n".join(map(str, found)))
    if explain:
        print(f"\n{counted.explained({name for one in found for name, *_ in one.rows()})}")


def _as_html(title: str, launches: list[TracedLaunch]) -> str:
    """A page with the ledger and the picture of each launch."""
    from html import escape

    cards = [part._repr_html_() for launch in launches for part in (launch.ledger(), launch.picture())]
    head = f'<meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
    return f"<!doctype html>{head}<h1>{escape(title)}</h1>{''.join(cards)}\n"


@app.command(epilog="Example: gfxlab step my_kernels.py:add_kernel --program 1 --only tl.load")
def step(
    target: Target,
    given: Given = None,
    arch: Arch = "gfx942",
    program: Annotated[str, typer.Option(help="The program to follow: its number, or x,y,z.")] = "0",
    wave: Annotated[int, typer.Option(help="The wave of the program.")] = 0,
    by: Annotated[str, typer.Option(help="A step is an 'instruction' or a 'line' of the kernel.")] = "instruction",
    only: Annotated[str, typer.Option(help="Steps of lines or instructions that contain this text.")] = "",
    launch: Annotated[int, typer.Option(help="Which launch of the kernel, counted from 1.", min=1)] = 1,
    at: Annotated[int | None, typer.Option(help="Show this one step with all its registers.")] = None,
    as_json: AsJson = False,
) -> None:
    """Follow one wave through the machine code of a kernel that FILE launches, step by step."""
    from gfxlab import data
    from gfxlab.pretended import evidence
    from gfxlab.simulator.show import script

    if by not in ("instruction", "line"):
        _stop(f"--by {by} is unknown: a step is an instruction or a line.")
    options = {"program": _numbers(program), "wave": wave, "by": by}
    try:
        with _output_is_ours(as_json):
            walk = evidence.walk(target, known(arch), launch, given or (), **options)
    except script.ScriptError as error:
        _stop(re.sub(r"\b(wave)=", r"--\1 ", re.sub(r"^program \(", "--program (", str(error))))
    try:
        walk = walk.only(only) if only else walk
        if as_json:
            _print_json(data.of_walk(walk))
            return
        print(walk if at is None else next(frame for frame in walk if frame.number == at))
    except StopIteration:
        _stop(f"there is no step {at}: this walk has steps {walk[0].number} to {walk[-1].number}.")
    except ValueError as error:
        _stop(f"--only {only}: {error}")


@app.command(epilog="Example: gfxlab conformance ../triton --arch gfx942 --sample 1")
def conformance(
    triton: Annotated[Path, typer.Argument(help="A checkout of Triton, whose tests run in place.")],
    arch: Annotated[list[str] | None, typer.Option(help="An architecture; may be given several times.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    sample: Annotated[int, typer.Option(help="Parametrisations of each test function.")] = 20,
    every: Annotated[bool, typer.Option("--all", help="Every parametrisation; goes on where it stopped.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="One test by pytest's name; several times.")] = None,
    logs: Annotated[Path, typer.Option(help="Where outcomes are kept.")] = Path(".conformance"),
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 1,
    seconds: Annotated[int, typer.Option(min=1, help="Processor time that one test may take.")] = 60,
    as_json: AsJson = False,
) -> None:
    """Run Triton's own tests of its language on simulated GPUs; needs pytest."""
    from gfxlab.conformance import survey

    archs = [known(name) for name in arch or survey.ARCHS]
    how = {"seed": seed, "every": every, "sample": sample, "only": only or (), "jobs": jobs, "seconds": seconds}
    try:
        report = survey.conformance(triton, archs=archs, logs=logs, **how)
    except FileNotFoundError as missing:
        _stop(f"{missing}")
    except KeyboardInterrupt:
        _stop(f"ended; what has run is in {logs}, and the same command goes on with the rest.", 130)
    if as_json:
        _print_json({arch: {"counts": report.counts(arch), "failures": report.failures(arch)} for arch in archs})
    else:
        print(report)


def _numbers(program: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in program.split(","))
    except ValueError:
        _stop(f"--program takes a number or three, such as 2 or 0,1,3; got {program!r}.")
