"""The command `course`. Each subcommand imports its part only when it runs, so that one broken part stops no other."""

from __future__ import annotations

import typer
from rich.console import Console

app = typer.Typer(
    help="Triton kernels on AMD GPUs: the course's tools.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)


@app.command()
def doctor(json: bool = typer.Option(False, "--json", help="Print the findings as JSON.")) -> None:
    """Check this machine, and name the command that mends each failure."""
    from course_lab import doctor

    findings = doctor.findings(doctor.Machine.here())
    if json:
        print(doctor.as_json(findings))
    else:
        console.print(doctor.as_text(findings), soft_wrap=True)
    raise typer.Exit(doctor.exit_status(findings))


@app.callback()
def _commands() -> None:
    """Keeps `course` a command with subcommands while there is only one."""


def main() -> None:
    app()
