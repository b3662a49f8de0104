"""The model on kernels: whose they are, on every engine the same tokens, a chat, several sequences over one cache."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from course_kernels import use_backend
from course_lab import cli, model
from course_lab.authoring import lessons
from course_lab.chat import Assembly, Conversation, Engine, terminal
from course_lab.chat.assembly import PARTS
from course_lab.chat.recorded import RecordedSteps
from course_lab.chat.split import split_attention
from course_lab.check import mine
from course_lab.journal import record
from course_lab.model import serving, stepping, weights
from course_lab.model.executed import executing
from course_lab.model.smollm2 import SmolLM2, Weights
from course_lessons.l09_language_model import reference
from gfxlab import using

pytestmark = pytest.mark.skipif(model.weights_path() is None, reason=f"no weights: {weights._FETCH}")
PROMPT = "One, two, three,"


@pytest.fixture(scope="module")
def llm() -> SmolLM2:
    torch.set_num_threads(1)
    return model.load(device="cpu", progress=False)


@pytest.fixture(scope="module")
def short(llm) -> SmolLM2:
    """The first two layers of it: every operation, in a fifteenth of the time. What it says is nonsense."""
    kept = Weights(llm.weights.embedding[:4096].clone(), llm.weights.layers[:2], llm.weights.final_norm)
    config = type(llm.config)(**{**vars(llm.config), "num_layers": 2, "vocab_size": 4096})
    return SmolLM2(config, kept, llm.tokenizer)


@pytest.fixture
def nothing_told(monkeypatch):
    monkeypatch.setattr(mine, "_told", set())


def solve(number: str, code: str | None = None) -> None:
    entry = lessons.exercise(number).entry
    record(number, "attempt", status="passed", answer=number, code=code or lessons.solution(number), entry=entry)


# ---- whose kernels ---------------------------------------------------------------------------------------------------


def test_my_kernel_says_once_that_it_falls_back(course_home, capsys, nothing_told):
    for _ in range(3):
        mine.my_kernel("3.2", len)
    mine.my_kernel("9.2")
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "3.2 is not solved yet: len of the course runs in its place.",
        "9.2 is not solved yet: the course's solution runs in its place.",
    ]


def test_my_kernel_is_silent_about_an_answer_that_passed(course_home, capsys, nothing_told):
    solve("3.2")
    assert mine.my_kernel("3.2", len) is not len
    assert capsys.readouterr().err == ""


def test_the_table_is_the_journal(course_home, nothing_told):
    assert Assembly().summary == f"your kernels: 0 of {len(PARTS)}"
    solve("9.3")
    solve("7.c")
    table = repr(Assembly())
    assert f"your kernels: 2 of {len(PARTS)}" in table
    (row,) = (line for line in table.splitlines() if " 9.3 " in line)
    assert "yours" in row and "solved" in row
    assert "the course's" in next(line for line in table.splitlines() if " 5.2 " in line)
    assert Assembly(mine=False).yours == 0


def test_the_learners_answer_is_what_runs(course_home, short, nothing_told):
    code = lessons.solution("9.3").replace("def few_rows(x, weight):", "def few_rows(x, weight):\n    HERE.append(1)")
    solve("9.3", f"HERE = []\n{code}")
    assembly = Assembly()
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    with using("gfx942", checks=False):
        y = assembly.functions["linear"](x, weight)
    torch.testing.assert_close(y, x @ weight.T, atol=1e-4, rtol=1e-4)
    assert assembly.ran["9.3"] == 1 and sys.modules["exercise_9_3"].HERE == [1]


def test_counting_calls_does_not_compile_a_step_anew():
    assembly, graphs = Assembly(mine=False), CompileCounter()
    norm = torch.compile(
        lambda x: assembly.functions["rms_norm"](x, torch.ones(8), 1e-6), backend=graphs, dynamic=False
    )
    with use_backend("torch"):
        for _ in range(3):
            norm(torch.ones(2, 8))
    assert graphs.frame_count == 1 and assembly.ran["2.2"] == 1


def test_parts_of_a_long_sequence_are_merged():
    q, pages = torch.randn(2, 9, 64), torch.randn(2, 40, 16, 3, 64)
    table, lens = torch.randperm(40).int().view(2, 20), torch.tensor([300, 7], dtype=torch.int32)
    with using("gfx942", checks=False) as runs:
        found = split_attention(mine.solution("7.5"), q, *pages, table, lens)
    expected = model.PAGED_OPERATIONS["paged_decode_attention"](q, *pages, table, lens)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert len(runs) == 2


# ---- on every engine -------------------------------------------------------------------------------------------------


def generated(llm: SmolLM2, count: int) -> list[int]:
    return llm.generate(list(range(5, 12)), count, page_size=16, progress=False).tokens


@pytest.mark.parametrize(
    "arch", ["gfx942", *(pytest.param(arch, marks=pytest.mark.slow) for arch in ("gfx950", "gfx1100"))]
)
def test_machine_code_gives_pytorchs_tokens(arch, short):
    expected, cache, found, unread = generated(short, 3), short.new_cache(16, page_size=16), [], list(range(5, 12))
    with short.using(**Assembly(mine=False).functions):
        for _ in range(3):
            with executing(short, arch, profile=bool(found)) as code:
                found.append(short.next_token(unread, cache))
            unread = found[-1:]
    assert found == expected
    assert set(code.by_layer()) == {None, 0, 1} and code.by_layer()[0].launches == 9
    assert code.total.loaded > sum(w.nbytes for layer in short.weights.layers for w in vars(layer).values())
    logits = next(call for call in code.calls if call.place == "logits")
    assert logits.counts.instructions > 4096 * 576 / 64 and logits.counts.matrix == 0
    assert "layer 1" in code.picture().text and "logits" in code.picture().text


def test_floors_have_three_causes_and_belong_to_the_architecture(short):
    with short.using(**Assembly(mine=False).functions), executing(short, "gfx942") as code:
        short.next_token([1], short.new_cache(4, page_size=4))
    floors = code.floors("MI300X")
    assert list(floors.seconds) == ["bytes", "issue slots", "launches"] and floors.binds == "launches"
    assert floors.seconds["bytes"] == code.total.least / 5.3e12 and code.total.least < code.total.bytes
    assert floors.seconds["issue slots"] == pytest.approx((code.total.vector + code.total.matrix) / (304 * 2.1e9), 0.01)
    with pytest.raises(ValueError, match="gfx942; MI355X is gfx950"):
        code.floors("MI355X")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100"])
def test_the_whole_model_as_machine_code(arch, llm):
    prompt = llm.tokenizer.encode(PROMPT)
    expected = llm.generate(prompt, 3, page_size=16, progress=False).tokens
    cache, found, unread = llm.new_cache(32, page_size=16), [], prompt
    with llm.using(**Assembly(mine=False).functions), using(arch, checks=False):
        for _ in range(3):
            found.append(llm.next_token(unread, cache))
            unread = found[-1:]
    assert found == expected


def test_steps_that_do_not_ask_the_host(short):
    batch = stepping.reserved(short, 2, 12, page_size=4)
    steps = stepping.Steps(short, batch, torch.tensor([5, 9]), reference.advance, end=-1)
    rows = torch.stack([steps().clone() for _ in range(6)]).T.tolist()
    for first, row in zip((5, 9), rows):
        assert row == short.generate([first], 6, page_size=4, progress=False).tokens


@pytest.mark.parametrize("prompts", [([5, 6, 7], [8, 9]), ([5],)])
def test_recorded_steps_continue_an_answer_and_the_next(prompts, short):
    """Without a graph here: the same steps, their state kept in tensors, up to the last slot of the cache."""
    cache, plain = short.new_cache(16, page_size=4), short.new_cache(16, page_size=4)
    steps = RecordedSteps(short, cache, reference.advance, record=False)
    for prompt in prompts:
        said = [short.next_token(prompt, cache)]
        expected = [short.next_token(prompt, plain)]
        while cache.length < (8 if prompt is not prompts[-1] else cache.capacity):
            said.append(steps(said[-1]))
            expected.append(short.next_token(expected[-1:], plain))
        assert said == expected and len(said) > 4
    assert cache.length == cache.capacity


def test_a_sequence_that_ended_stays_where_it_is(short):
    batch = stepping.reserved(short, 1, 8, page_size=4)
    (first,) = short.generate([5], 1, progress=False).tokens
    steps = stepping.Steps(short, batch, torch.tensor([5]), reference.advance, end=first)
    steps()
    assert batch.slots.tolist() == [-1] and batch.seq_lens.tolist() == [0] and batch.positions.tolist() == [0]


# ---- drawing ---------------------------------------------------------------------------------------------------------


def test_a_draw_is_the_same_on_every_engine(short):
    logits = 4 * torch.randn(1, 4096, generator=torch.Generator().manual_seed(0))
    plain = [int(short.choose(logits, model.Sampler(1.2, 12, seed))) for seed in range(6)]
    with short.using(**Assembly(mine=False).functions), using("gfx942", checks=False):
        assert [int(short.choose(logits, model.Sampler(1.2, 12, seed))) for seed in range(6)] == plain
    assert len(set(plain)) > 1 and set(plain) <= set(logits.topk(12).indices[0].tolist())


@pytest.mark.parametrize(("options", "words"), [({"temperature": 0.0}, "temperature is 0.0"), ({"top_k": 0}, "top_k")])
def test_a_sampler_refuses_nonsense(options, words):
    with pytest.raises(ValueError, match=words):
        model.Sampler(**options)


# ---- serving ---------------------------------------------------------------------------------------------------------


PREFIX = [7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("rows", [2, 5])
def test_sequences_served_together_say_what_each_says_alone(rows, short):
    prompts = [PREFIX + list(range(20, 20 + more)) for more in (1, 4, 2, 9, 3)]
    served = serving.serve(short, prompts, reference.next_slots, rows=rows, max_new_tokens=5, page_size=4, pages=64)
    for prompt, tokens in zip(prompts, served.tokens):
        assert tokens == short.generate(prompt, 5, progress=False).tokens
    assert served.in_prompts == sum(map(len, prompts)) and served.read == served.in_prompts - 4 * len(PREFIX)
    assert served.copies == 5, "the prefix ends inside a page, which each sequence copies before it writes"
    assert served.bytes_saved == (served.alone - served.pages) * served.page_bytes
    assert served.pages < served.alone if rows == 5 else served.pages == served.alone  # the prefix holds two pages too


def test_pages_are_free_when_all_have_ended(short, monkeypatch):
    pools = []
    monkeypatch.setattr(serving, "_Pool", lambda *a, make=serving._Pool: pools.append(make(*a)) or pools[-1])
    prompts = [[*PREFIX, 30], [*PREFIX, 31, 32]]
    serving.serve(short, prompts, reference.next_slots, rows=1, max_new_tokens=3, page_size=4, pages=16)
    assert pools[0].refs.tolist() == [1, 1] + [0] * 14 and (pools[0].table == -1).all()


def test_without_copy_on_write_one_reads_what_another_wrote(short):
    """The lesson's trap: this test of serving can fail."""

    def careless(table, lens, refs, keys, values):
        hidden = refs.clamp(max=1)
        slots = reference.next_slots(table, lens, hidden, keys, values)
        refs += (hidden > 0) & (refs == 0)
        return slots

    prompts, options = [[*PREFIX, 30], [*PREFIX, 900]], {"max_new_tokens": 6, "page_size": 4, "pages": 32}
    right = serving.serve(short, prompts, reference.next_slots, rows=2, **options).tokens
    assert serving.serve(short, prompts, careless, rows=2, **options).tokens != right


# ---- the chat --------------------------------------------------------------------------------------------------------


def test_a_conversation_remembers_and_streams(llm):
    talk = Conversation(Engine("torch"), progress=False)
    pieces = list(talk.answer("What is the capital of France?", 12))
    assert "".join(pieces) == "The capital of France is Paris." and len(pieces) > 3
    assert talk.said.read == 37 and talk.said.tokens[-1] == llm.tokenizer.end_of_text
    first = talk._cache.length
    list(talk.answer("And of Italy?", 1))
    assert talk.said.read < 20 and talk._cache.length == first + talk.said.read
    history = llm.tokenizer.decode([t for turn in talk._turns for t in turn], keep_control_tokens=True)
    assert "Paris.<|im_end|>\n<|im_start|>user\nAnd of Italy?<|im_end|>\n<|im_start|>assistant\n" in history


def test_a_stopped_answer_is_kept_as_far_as_it_came(llm):
    talk = Conversation(Engine("torch"), progress=False)
    pieces = talk.answer("Count to twenty.", 30)
    next(pieces)
    pieces.close()
    assert len(talk.said.tokens) == 1
    list(talk.answer("Go on.", 1))
    assert talk.said.read < 20


def test_old_turns_are_forgotten_when_the_room_is_full(short):
    talk = Conversation(Engine("torch"), room=120, progress=False)
    talk.llm, talk._cache = short, short.new_cache(120, 16)
    short.tokenizer.encode, encode = (lambda text: [5] * 40), short.tokenizer.encode
    try:
        for _ in range(5):
            list(talk.answer("x", 8))
            assert talk._cache.length <= 120 and len(talk._turns) <= 3
        with pytest.raises(ValueError, match="40 tokens"):
            talk.room = 41
            list(talk.answer("x", 8))
    finally:
        short.tokenizer.encode = encode


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("quantum",), "no engine 'quantum'; choose torch"),
        (("simulator", "gfx1"), "unknown GPU 'gfx1'"),
        (("torch", "gfx942", "graph"), "graph needs a GPU"),
        (("torch", "gfx942", "twice"), "launch is 'twice'; choose each, graph or compiled"),
    ],
)
def test_an_engine_refuses_what_it_does_not_know(options, words):
    with pytest.raises(ValueError, match=words):
        Engine(*options)


def test_the_command_says_what_is_wrong_in_one_line(course_home, monkeypatch, capsys):
    for arguments, words in (
        (["--mine", "hi"], "runs no kernels"),
        (["--engine", "abacus", "hi"], "no engine 'abacus'"),
    ):
        monkeypatch.setattr(sys, "argv", ["course", "chat", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        error = capsys.readouterr().err
        assert exit.value.code == 1 and error.startswith("course: ") and words in error and error.count("\n") == 1


def test_no_message_and_nobody_who_types_one_is_no_error(llm, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert terminal.chat(Conversation(Engine("torch"), progress=False), "", 2) == 0
    assert capsys.readouterr().out == ""


def test_a_message_that_is_too_long_does_not_end_a_conversation(llm, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("long " * 2000 + "\nshort\n"))
    assert terminal.chat(Conversation(Engine("torch"), progress=False), "", 1) == 0
    error = capsys.readouterr().err
    assert "course: the message has 20" in error and error.index("course: ") < error.index("tokens read")


@pytest.mark.parametrize(
    "message", ["\udc81 \ud800", "\ud83d\udc69", "e\u0301 \u202e\u0000 \U0001f469\u200d\U0001f466"]
)
def test_any_text_is_a_message(llm, message):
    talk = Conversation(Engine("torch"), progress=False)
    list(talk.answer(message, 1))
    assert talk.said.read > 0


def test_ctrl_c_ends_the_answer_and_the_chat_goes_on(llm, capsys, monkeypatch):
    talk = Conversation(Engine("torch"), progress=False)
    choose, calls = talk._next, []

    def next_token() -> int:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return choose()

    monkeypatch.setattr(talk, "_next", next_token)
    assert terminal.chat(talk, "Count to five.", 3) == terminal.STOPPED
    out, error = capsys.readouterr()
    assert out.endswith(" [stopped]\n") and "no kernel was launched" in error
    assert terminal.chat(talk, "Say hello.", 2) == 0
    assert "tokens/s" in capsys.readouterr().err
