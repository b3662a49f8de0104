"""Wrong answers to the exercises of lesson 04, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_A = "a * cos - b * sin"
_B = "b * cos + a * sin"
_FIRST = "first * cos - second * sin"
_SECOND = "second * cos + first * sin"
_ROW = "positions_ptr + b * stride_pb + s * stride_ps"
_HEADS = "(offs_h < heads) & mask_p"

MUTANTS = {
    "4.1": (
        Mutant("turns the other way", ((_A, "a * cos + b * sin"), (_B, "b * cos - a * sin")), "turns-backwards"),
        Mutant("two minus signs", ((_B, "b * cos - a * sin"),), "not-a-rotation"),
        Mutant(
            "cos and sin exchanged",
            (("cos = tl.load(cos_ptr", "cos = tl.load(sin_ptr"), ("sin = tl.load(sin_ptr", "sin = tl.load(cos_ptr")),
            "cos-and-sin-exchanged",
        ),  # fmt: skip
        Mutant(
            "overwrites a first",
            ((f"    tl.store(y_ptr + pair, ({_A})", f"    a = {_A}\n    tl.store(y_ptr + pair, (a)"),),
            "uses-turned-partner",
        ),
        Mutant(
            "neighbours as pairs",
            (
                ("ptr + half + pair", "ptr + 2 * pair + 1"),
                ("x_ptr + pair", "x_ptr + 2 * pair"),
                ("y_ptr + pair", "y_ptr + 2 * pair"),
            ),
            "other-pairs",
        ),  # fmt: skip
        Mutant(
            "angles of the head",
            (
                ("cos_ptr += token * half", "cos_ptr += head * half"),
                ("sin_ptr += token * half", "sin_ptr += head * half"),
            ),
            "angle-of-head",
        ),  # fmt: skip
        Mutant("stores without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
        Mutant("partner is the element itself", (("x_ptr + half + pair", "x_ptr + pair"),), "partner-missing"),
    ),
    "4.2": (
        Mutant("takes the token's number", ((f"tl.load({_ROW}).to(tl.int64)", "s"),), "position-ignored"),
        Mutant(
            "forgets the batch of positions", ((_ROW, "positions_ptr + s * stride_ps"),), "first-sequence-everywhere"
        ),
        Mutant("no mask for heads", ((_HEADS, "(offs_h < BLOCK_H) & mask_p"),), "mask-too-wide"),
        Mutant("rows of x without gaps", (("s * stride_xs", "s * heads * stride_xh"),), "between-rows"),
        Mutant("stores every sequence over the first", (("b * stride_yb + ", ""),), "program-id-unused"),
        Mutant("table rows as wide as heads", (("row * half", "row * 2 * half"),), "table-row-too-wide"),
        Mutant(
            "turns the other way",
            ((_FIRST, "first * cos + second * sin"), (_SECOND, "second * cos - first * sin")),
            "turns-backwards",
        ),  # fmt: skip
        Mutant(
            "neighbours as pairs",
            (
                ("offs_h * stride_xh + pair", "offs_h * stride_xh + 2 * pair"),
                ("offs_h * stride_yh + pair", "offs_h * stride_yh + 2 * pair"),
                ("_ptr + half", "_ptr + 1"),
            ),
            "other-pairs",
        ),  # fmt: skip
    ),
    "4.3": (
        Mutant(
            "stores halves",
            (("b * cos + a * sin).reshape(BLOCK_H, D)", "b * cos + a * sin).permute(0, 2, 1).reshape(BLOCK_H, D)"),),
            "order-of-join",
        ),  # fmt: skip
        Mutant(
            "takes halves",
            (("x.reshape(BLOCK_H, D // 2, 2)", "x.reshape(BLOCK_H, 2, D // 2).permute(0, 2, 1)"),),
            "other-pairs",
        ),  # fmt: skip
        Mutant("joins the second first", ((f"tl.join({_A}, {_B})", f"tl.join({_B}, {_A})"),), "members-exchanged"),
        Mutant(
            "neox pairs throughout",
            (
                ("x.reshape(BLOCK_H, D // 2, 2)", "x.reshape(BLOCK_H, 2, D // 2).permute(0, 2, 1)"),
                ("a * sin).reshape(BLOCK_H, D)", "a * sin).permute(0, 2, 1).reshape(BLOCK_H, D)"),
            ),
            "other-pairs",
        ),  # fmt: skip
        Mutant("turns the other way", ((_A, "a * cos + b * sin"), (_B, "b * cos - a * sin")), "turns-backwards"),
        Mutant("no mask for heads", (("mask = offs_h < heads", "mask = offs_h < BLOCK_H"),), "mask-too-wide"),
        Mutant("table rows as wide as heads", (("token * (D // 2)", "token * D"),), "table-row-too-wide"),
    ),
    "4.4": (
        Mutant(
            "as given, both bugs",
            (
                (_HEADS, "(offs_h < BLOCK_H) & mask_p"),
                (
                    "    tl.store(x_ptr + half",
                    "    first = (tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32))\n    tl.store(x_ptr + half",
                ),
            ),
            "mask-too-wide",
        ),
        Mutant("mask left", ((_HEADS, "(offs_h < BLOCK_H) & mask_p"),), "mask-too-wide"),
        Mutant(
            "second load left",
            (
                (
                    "    tl.store(x_ptr + half",
                    "    first = tl.load(x_ptr, mask=mask, other=0.0).to(tl.float32)\n    tl.store(x_ptr + half",
                ),
            ),
            "uses-turned-partner",
        ),
        Mutant(
            "turns a copy",
            (("    T, heads, D = x.shape", "    x = x.clone()\n    T, heads, D = x.shape"),),
            "left-as-it-was",
        ),
        Mutant(
            "turns the other way",
            ((_FIRST, "first * cos + second * sin"), (_SECOND, "second * cos - first * sin")),
            "turns-backwards",
        ),  # fmt: skip
        Mutant("two plus signs", ((_FIRST, "first * cos + second * sin"),), "not-a-rotation"),
        Mutant(
            "never stores the second half",
            (("    tl.store(x_ptr + half, (second * cos + first * sin).to(x_ptr.dtype.element_ty), mask=mask)\n", ""),),
            "partly-written",
        ),
    ),
    "4.5": (
        Mutant("turns the values too", (("turns = head < q_heads + kv_heads", "turns = head >= 0"),), "values-turned"),
        Mutant(
            "forgets the keys", (("turns = head < q_heads + kv_heads", "turns = head < q_heads"),), "keys-not-turned"
        ),
        Mutant(
            "multiplies the values by 1 and 0",
            (
                (f"tl.where(turns, {_A}, a)", "a * tl.where(turns, cos, 1.0) - b * tl.where(turns, sin, 0.0)"),
                (f"tl.where(turns, {_B}, b)", "b * tl.where(turns, cos, 1.0) + a * tl.where(turns, sin, 0.0)"),
                ("first = a", "first = (a"),
                ("second = b", "second = (b"),
                (", 0.0).to(", ", 0.0)).to("),
            ),
            "values-multiplied",
        ),  # fmt: skip
        Mutant(
            "takes the token's number", (("tl.load(positions_ptr + token).to(tl.int64)", "token"),), "position-ignored"
        ),
        Mutant(
            "values before keys",
            (
                ("k_head = head - q_heads", "k_head = head - q_heads - kv_heads"),
                ("v_head = k_head - kv_heads", "v_head = head - q_heads"),
            ),
            "keys-and-values-exchanged",
        ),  # fmt: skip
        Mutant("no lower end for keys", (("(k_head >= 0) & ", ""),), "out-of-bounds"),
        Mutant(
            "rows without gaps", (("token * stride_t", "token * (q_heads + 2 * kv_heads) * 2 * half"),), "between-rows"
        ),
        Mutant("results exchanged", (("return q, k, v", "return q, v, k"),), "keys-and-values-exchanged"),
        Mutant(
            "neighbours as pairs",
            (
                ("head * 2 * half + pair\n    a =", "head * 2 * half + 2 * pair\n    a ="),
                ("x_ptr + half", "x_ptr + 1"),
                ("+ head) * 2 * half + pair", "+ head) * 2 * half + 2 * pair"),
                ("_head) * 2 * half + pair", "_head) * 2 * half + 2 * pair"),
                ("q_ptr + half", "q_ptr + 1"),
                ("k_ptr + half", "k_ptr + 1"),
                ("v_ptr + half", "v_ptr + 1"),
            ),
            "other-pairs",
        ),  # fmt: skip
    ),
    "4.6": (
        Mutant("positions go on", (("(token - begin)", "(token - 0 * begin)"),), "positions-not-restarted"),
        Mutant("a start belongs to the sequence before", (("starts <= token", "starts < token"),), "starts-too-late"),
        Mutant(
            "the rest is not copied",
            (("    tl.store(y_ptr + rest, tl.load(x_ptr + rest, mask=mask_rest, other=0.0), mask=mask_rest)\n", ""),),
            "rest-not-copied",
        ),  # fmt: skip
        Mutant(
            "partner half a head away",
            (("x_ptr + half + pair", "x_ptr + D // 2 + pair"), ("y_ptr + half + pair", "y_ptr + D // 2 + pair")),
            "partner-across-the-head",
        ),  # fmt: skip
        Mutant("takes the last start", (("tl.where(starts <= token, starts, 0)", "starts"),), "out-of-bounds"),
        Mutant("copies from half on", (("rest = 2 * half +", "rest = half +"),), "rest-too-early"),
        Mutant("no mask for heads", (("(offs_h < heads) & mask_p", "(offs_h < BLOCK_H) & mask_p"),), "mask-too-wide"),
        Mutant(
            "the rest without its end",
            (("(offs_h < heads) & (rest < D)", "(offs_h < heads) & (rest >= 0)"),),
            "mask-too-wide",
        ),
        Mutant("turns the other way", ((_A, "a * cos + b * sin"), (_B, "b * cos - a * sin")), "turns-backwards"),
    ),
}
