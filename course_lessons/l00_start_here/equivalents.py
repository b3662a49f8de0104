"""Generated mutants of lesson 00's solutions that are right answers, each with its reason."""

from course_lab.authoring.operators.equivalent import Equivalent

EQUIVALENT = {
    "0.4": (
        Equivalent("swapped-operands", "x - y", "|x - y| is |y - x|"),
        Equivalent("swapped-loads", "`x_ptr` and `y_ptr`", "|x - y| is |y - x|"),
    ),
}
