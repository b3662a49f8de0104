"""Mutation operators: mistakes that a machine makes in the syntax tree of a right answer.

    for made in generate(solution):
        print(made.operator, made.line, made.says)

A check is as good as the wrong answers that it rejects, and what an author thinks of is only a sample.  Each operator
is one kind of mistake, applied wherever it fits; `course mutants --generate` grades the results.  The same results are
counterfactuals: an answer with the numbers of one of them most likely makes its mistake.
"""

from course_lab.authoring.operators.generation import OPERATORS, Generated, generate

__all__ = ["OPERATORS", "Generated", "generate"]
