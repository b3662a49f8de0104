"""Why a generated mutant is a right answer: reasons that hold in several lessons."""

from course_lab.authoring.operators.equivalent import Equivalent

IDLE = "no lane of this kernel looks at another one, and masked lanes are never stored"
PROMOTED = "the other operand is float32, and Triton widens this one to it"
FROM_MAX = "tl.max of 16 bits gives float32, and Triton widens what it is taken from"
COMMUTES = "a sum or product of two is the same either way round"
LAST = "the value is rounded to the same dtype at the store that follows"
DENSE = "the tensor has no gaps, and would need more than 2^31 elements before its offsets need 64 bits"
WIDER = "a wider block, whose further lanes are masked"
ZERO = "the other factor is 0 there, and 0 times a finite number adds nothing"
ROUNDED = "the value has no more bits than the 16 already"
NOT_STORED = "these rows or columns are never stored, and reach no others"
REPLACED = "the score of such a key is replaced by minus infinity, whatever it was"
WEIGHTS = "a rounding of weights that the statement allows to be rounded to the same 16 bits"
FITS = "the scale is made so that no quotient exceeds the largest number but by a rounding, which is rounded back to it"
FEW_HEADS = "a model has fewer heads than that"


def idle(*loads: str) -> tuple[Equivalent, ...]:
    """Masked lanes of these loads hold something else; each is a regular expression of its line."""
    about = "|".join(loads) or "."
    return Equivalent("drop-other", about, IDLE), Equivalent("other-value", about, IDLE)
