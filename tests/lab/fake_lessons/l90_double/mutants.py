"""Wrong answers to the exercises on doubling."""

from course_lab.authoring.exercise import Mutant

_GRID = "triton.cdiv(x.numel(), 128)"


def _mutants(stored: str) -> tuple[Mutant, ...]:
    return (
        Mutant("no store mask", ((f"{stored}, mask=mask)", f"{stored})"),), "missing-store-mask"),
        Mutant("grid rounds down", ((_GRID, "x.numel() // 128"),), "grid-floor-division"),
        Mutant("no program id", (("tl.program_id(0) * BLOCK + ", ""),), "program-id-unused"),
        Mutant("never launched", (("_kernel[(", "_kernel and [("),), "not-launched"),
        Mutant("twice the size", (("return y", "return y.repeat(2)"),), "wrong-shape"),
    )


MUTANTS = {"90.1": _mutants("2 * x"), "90.2": _mutants("x / 2")}
