"""Wrong answers to the exercises of lesson 07, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_TURN = "a, b = a * cos - b * sin, b * cos + a * sin"
_WEIGHT = 'tl.exp2(lse - tl.where(top == -float("inf"), 0.0, top))'
_TOTAL = "tl.where(total == 0.0, 1.0, total)"

MUTANTS = {
    "7.1": (
        Mutant(
            "stores in the tokens' order",
            (("position = tl.load(positions_ptr + token)", "position = token"),),
            "positions-unused",
        ),
        Mutant(
            "v stored from k",
            (
                (
                    "tl.store(v_cache_ptr + position * WIDTH + cols, v",
                    "tl.store(v_cache_ptr + position * WIDTH + cols, k",
                ),
            ),
            "keys-as-values",
        ),
        Mutant(
            "forgets the values",
            (("    tl.store(v_cache_ptr + position * WIDTH + cols, v, mask=mask)\n", ""),),
            "values-not-stored",
        ),
        Mutant(
            "a launch for each cache",
            (
                (
                    "    append_kernel[(T,)](k, v, k_cache, v_cache, positions, k.stride(0), v.stride(0),",
                    "    for k, k_cache in ((k, k_cache), (v, v_cache)):\n"
                    "        append_kernel[(T,)](k, k, k_cache, k_cache, positions, k.stride(0), k.stride(0),",
                ),
            ),
            "too-many-launches",
        ),
        Mutant(
            "caches exchanged",
            (
                ("k_cache_ptr + position * WIDTH + cols, k", "k_cache_ptr + position * WIDTH + cols, v"),
                ("v_cache_ptr + position * WIDTH + cols, v", "v_cache_ptr + position * WIDTH + cols, k"),
            ),
            "caches-exchanged",
        ),
        Mutant("stores without a mask", (("cols, k, mask=mask)", "cols, k)"),), "missing-store-mask"),
        Mutant("rows of k as long as they are wide", (("token * stride_kt", "token * WIDTH"),), "between-rows"),
        Mutant(
            "rows of the cache as far apart as those of k",
            (("k_cache_ptr + position * WIDTH", "k_cache_ptr + position * stride_kt"),),
            "out-of-bounds",
        ),
        Mutant("one program for all tokens", (("append_kernel[(T,)]", "append_kernel[(1,)]"),), "partly-written"),
        Mutant(
            "positions in 32 bits",
            (("positions_ptr + token)", "positions_ptr + token).to(tl.int32)"),),
            "missing-int64",
        ),
    ),
    "7.2": (
        Mutant("padding stored", (("exists = slot >= 0", "exists = slot < 1000000"),), "padding-slot"),
        Mutant(
            "padding wraps around to the last slot",
            (
                (
                    "slot = tl.load(slots_ptr + token)",
                    "slot = tl.load(slots_ptr + token)\n    slot = tl.where(slot < 0, slot + PAGE * 5, slot)",
                ),
            ),
            "padding-stored",
        ),
        Mutant(
            "padding into slot 0",
            (("slot = tl.load(slots_ptr + token)", "slot = tl.maximum(tl.load(slots_ptr + token), 0)"),),
            "padding-stored",
        ),
        Mutant("slot 0 taken for padding", (("slot >= 0", "slot > 0"),), "slot-zero-left-out"),
        Mutant(
            "pages without gaps",
            (("(slot // PAGE) * stride_page + (slot % PAGE) * WIDTH", "slot * WIDTH"),),
            "between-rows",
        ),
        Mutant(
            "page and place exchanged",
            (
                (
                    "(slot // PAGE) * stride_page + (slot % PAGE) * WIDTH",
                    "(slot % PAGE) * stride_page + (slot // PAGE) * WIDTH",
                ),
            ),
            "out-of-bounds",
        ),
        Mutant("always page 0", (("(slot // PAGE) * stride_page + ", ""),), "first-page-only"),
        Mutant(
            "pages of 8, whatever PAGE is",
            (("slot // PAGE", "slot // 8"), ("slot % PAGE", "slot % 8")),
            "hard-coded-size",
        ),
        Mutant(
            "stores without a mask for the columns",
            (("mask=mask & exists", "mask=(cols >= 0) & exists"),),
            "mask-too-wide",
        ),
    ),
    "7.3": (
        Mutant("turns by the slot", (("tl.load(positions_ptr + token)", "tl.maximum(slot, 0)"),), "turned-by-slot"),
        Mutant("keys stay plain", (("slot >= 0, HALF, True)", "slot >= 0, HALF, False)"),), "keys-not-turned"),
        Mutant("values turn too", (("slot >= 0, HALF, False)", "slot >= 0, HALF, True)"),), "values-turned"),
        Mutant("queries stay plain", (("True, HALF, True)", "True, HALF, False)"),), "queries-not-turned"),
        Mutant("signs exchanged", ((_TURN, "a, b = a * cos + b * sin, b * cos - a * sin"),), "turned-backwards"),
        Mutant(
            "neighbours as pairs",
            (
                ("x_ptr + i)", "x_ptr + 2 * i)"),
                ("x_ptr + HALF + i)", "x_ptr + 2 * i + 1)"),
                ("out_ptr + i,", "out_ptr + 2 * i,"),
                ("out_ptr + HALF + i,", "out_ptr + 2 * i + 1,"),
            ),
            "wrong-pairs",
        ),
        Mutant(
            "second half from the new first",
            ((_TURN, "a = a * cos - b * sin\n        b = b * cos + a * sin"),),
            "turned-with-new-half",
        ),
        Mutant("padding stored", (("mask = (i < HALF) & exists", "mask = i < HALF"),), "padding-slot"),
        Mutant(
            "nothing turned for padding", (("position, True, HALF", "position, slot >= 0, HALF"),), "partly-written"
        ),
    ),
    "7.4": (
        Mutant(
            "as given, both bugs",
            (
                ("sequence * stride_tb + ", "0 * stride_tb + "),
                (
                    'tl.where(exists, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))',
                    "tl.sum(k * q[None, :], axis=1) * scale",
                ),
            ),
            "table-of-sequence-0",
        ),
        Mutant("table of sequence 0 left", (("sequence * stride_tb + ", ""),), "table-of-sequence-0"),
        Mutant(
            "idle lanes left",
            (
                (
                    'tl.where(exists, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))',
                    "tl.sum(k * q[None, :], axis=1) * scale",
                ),
            ),
            "idle-lanes-count",
        ),
        Mutant("idle lanes with a score of 0", (('* scale, -float("inf"))', "* scale, 0.0)"),), "idle-lanes-count"),
        Mutant("query heads in turn on the key heads", (("head // (QH // KH)", "head % KH"),), "wrong-kv-head"),
        Mutant("key head 0 for all", (("kv_head = head // (QH // KH)", "kv_head = 0"),), "wrong-kv-head"),
        Mutant(
            "pages beyond the length looked up",
            (("sequence * stride_tb + j // PAGE, mask=exists, other=0)", "sequence * stride_tb + j // PAGE)"),),
            "missing-load-mask",
        ),
        Mutant(
            "keys without a mask",
            (
                ("tl.load(k_cache_ptr + row, mask=exists[:, None], other=0.0)", "tl.load(k_cache_ptr + row)"),
                ("mask=exists, other=0)", "mask=exists, other=1000)"),
            ),
            "missing-load-mask",
        ),
    ),
    "7.5": (
        Mutant("plain mean", ((_WEIGHT, "tl.where(mask_s, 1.0, 0.0)"),), "plain-mean"),
        Mutant("no maximum subtracted", ((_WEIGHT, "tl.exp2(lse)"),), "no-maximum"),
        Mutant("powers of e", ((_WEIGHT, _WEIGHT.replace("exp2", "exp")),), "base-e"),
        Mutant("LSE itself as the weight", ((_WEIGHT, "tl.where(mask_s, lse, 0.0)"),), "lse-as-weight"),
        Mutant("idle lanes hold 0", (('other=-float("inf")', "other=0.0"),), "idle-lanes-count"),
        Mutant("idle lanes hold anything", ((', other=-float("inf")', ""),), "missing-other"),
        Mutant("weights not divided by their sum", ((" / " + _TOTAL, ""),), "weights-not-divided"),
        Mutant("no care for a row of nothing", ((_WEIGHT, "tl.exp2(lse - top)"),), "nan-for-nothing"),
        Mutant("only the best part", ((_WEIGHT, "tl.where(lse == top, 1.0, 0.0)"),), "best-part-only"),
        Mutant(
            "store without a mask",
            (("out.to(out_ptr.dtype.element_ty), mask=mask_d", "out.to(out_ptr.dtype.element_ty)"),),
            "missing-store-mask",
        ),
    ),
    "7.6": (
        Mutant("multiplies by the scale", (("k / scale", "k * scale"),), "scale-multiplied"),
        Mutant("forgets the scale", (("k / scale", "k"),), "scale-forgotten"),
        Mutant("no clamp", (("tl.clamp(k / scale, -FP8_MAX, FP8_MAX)", "k / scale"),), "not-clamped"),
        Mutant("clamps at 448 in any type", (("-FP8_MAX, FP8_MAX)", "-448.0, 448.0)"),), "clamped-at-448"),
        Mutant("flash layout", (("(piece * PAGE + place) * X + d % X", "(slot * KH + h) * D + d"),), "not-packed"),
        Mutant("padding stored", (("mask=mask & (slot >= 0)", "mask=mask"),), "padding-slot"),
        Mutant(
            "places and pieces exchanged",
            (("(piece * PAGE + place) * X + d % X", "((page * KH + h) * PAGE + place) * D + d"),),
            "heads-whole",
        ),
        Mutant("pieces of 8", (("D // X", "D // 8"), ("d // X", "d // 8"), ("d % X", "d % 8")), "out-of-bounds"),
        Mutant(
            "pages of 8, whatever PAGE is",
            (("slot // PAGE", "slot // 8"), ("slot % PAGE", "slot % 8")),
            "hard-coded-size",
        ),
        Mutant("slots in 32 bits", (("slots_ptr + token)", "slots_ptr + token).to(tl.int32)"),), "missing-int64"),
        Mutant("heads beyond the last", (("mask = (h < KH) & (d < D)", "mask = (h >= 0) & (d < D)"),), "mask-too-wide"),
    ),
}
