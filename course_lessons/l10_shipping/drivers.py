"""What the checks of lesson 10 do with an answer, in the child: refusals, gradients, operators, layers, tests, clocks.

The module is executed by itself in the child (see `Exercise.driver`): it knows no reference. A driver takes the names
that the answer defines and returns what is called on each case in place of the entry. It complains by raising
`Finding`, and leaves what it saw to `judges.py`, outside, by raising `Told`; what it returns is compared as ever.
"""

import copy
import itertools
import json
import linecache
import math
import random
import sys
import types

import torch
import triton
import triton.language as tl
from torch.utils._python_dispatch import TorchDispatchMode

from gfxlab.engine import hooks

FINE = torch.zeros(1)  # what a case returns that asks for no numbers


class Finding(Exception):
    """What is wrong with an answer, as "code: sentence"."""

    def __init__(self, code, sentence):
        super().__init__(f"{code}: {sentence}")


class Told(Exception):
    """What an answer did, for the judge outside."""


def _quiet_hypothesis():
    """Before an answer is read: its tests neither store what they found nor look for the smallest failing case."""
    try:
        from hypothesis import Phase, settings
    except ImportError:
        return
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("check", database=None, deadline=None, derandomize=True, max_examples=20, phases=phases)
    settings.load_profile("check")


_quiet_hypothesis()


# ---- the wrapper as a contract -------------------------------------------------------------------------------------


class Copies(TorchDispatchMode):
    """The elements that PyTorch copies inside a `with` block."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        copies = ("aten.clone", "aten._to_copy", "aten.copy_", "aten.cat", "aten.contiguous", "aten.index")
        if str(operator).startswith(copies) and isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def contract(names):
    """Cases: "here", or "meta" for the last of the tensors on another device; then the arguments of `ship`.

    Whether they are to be taken or refused is not known in here.
    """
    ship = names["ship"]

    def run(where, *args):
        if where == "meta":
            last = max(i for i, a in enumerate(args) if isinstance(a, torch.Tensor))
            args = [a.to("meta") if i == last else a for i, a in enumerate(args)]
        before = hooks.launches()
        try:
            with Copies() as copies:
                y = ship(*args)
        except (ValueError, TypeError) as error:
            raise Told(f"{type(error).__name__}\n{error}").with_traceback(error.__traceback__) from None
        _look_at_what_is_given(args, y, copies.elements, hooks.launches() - before)
        return y

    return run


def _look_at_what_is_given(args, y, copied, launches):
    x, given = args[0], [a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)]
    if not isinstance(y, torch.Tensor):
        raise Finding("wrong-type", f"`ship` must return a tensor, and it returned {type(y).__name__}.")
    if copied >= x.numel() > 0:
        raise Finding(
            "silent-copy",
            f"{copied} elements were copied before the kernel saw them: the caller pays for a second trip, "
            "and nobody told them. Which layouts can the kernel walk as they are, and which must it refuse?",
        )
    if launches and not x.numel():
        raise Finding(
            "empty-launch",
            f"A kernel was launched for a tensor of shape {tuple(x.shape)}: a grid of 0 programs is an error on some "
            "machines, and a block of 0 elements on all. Return before the launch.",
        )
    if y.numel() and not launches:
        raise Finding("no-kernel", "No kernel ran. `ship` checks, and then it calls your kernel.")
    if y.numel() and y.untyped_storage().data_ptr() in given:
        raise Finding("aliased-result", "The result lies in the memory of an argument. It needs memory of its own.")


# ---- gradients -----------------------------------------------------------------------------------------------------


def gradients(names):
    """Cases: numbers a row that may be kept, the differentiable arguments, other arguments, and at the end the gradient
    that arrives, or None."""
    entry = names["differentiable"]

    def run(numbers, *args):
        *given, dy = args
        leaves = _leaves(given)
        y = _forward(entry, leaves)
        for node in _functions(y.grad_fn):
            _look_at_what_is_kept(node, leaves, numbers)
        found = _backward(y, leaves, dy)
        _look_at_two_calls(entry, given, dy, found)
        return (y.detach(), *found)

    return run


def _leaves(given):
    return [a.detach().requires_grad_() if isinstance(a, torch.Tensor) else a for a in given]


def _forward(entry, leaves):
    before = hooks.launches()
    y = entry(*leaves)
    if hooks.launches() == before:
        raise Finding("no-kernel", "No kernel ran in the forward pass. It is your kernel that is shipped.")
    if not y.requires_grad:
        raise Finding("no-gradient", "The result does not require grad: call your Function by its `apply`.")
    return y


def _backward(y, leaves, dy):
    y.sum().backward() if dy is None else y.backward(dy)
    return [_gradient(a) for a in leaves if isinstance(a, torch.Tensor)]


def _gradient(leaf):
    if leaf.grad is None:
        raise Finding("gradient-missing", f"The argument of shape {tuple(leaf.shape)} got no gradient.")
    return leaf.grad


def _look_at_two_calls(entry, given, dy, found):
    """A layer is called twice before the first of the two backward passes: the calls must not share what they keep."""
    leaves = _leaves(given)
    y = entry(*leaves)
    entry(*_leaves([_another(a) for a in given]))
    again = _backward(y, leaves, dy)
    if not all(map(_agree, found, again)):
        raise Finding(
            "kept-on-ctx",
            "Your function was called a second time, on other numbers, before the backward pass of the first call, and "
            "the first gradients became others. Each call has a `ctx` of its own: what is kept in the class or in a "
            "variable outside is the last call's.",
        )


def _another(value):
    return 2 * value + 1 if isinstance(value, (torch.Tensor, float)) else value


def _agree(a, b):
    return torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-6, equal_nan=True)


def _functions(node):
    """The learner's own Functions among what leads to a result; they alone have `saved_tensors`."""
    seen, left = set(), [node]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [before for before, _ in node.next_functions]
            if hasattr(node, "saved_tensors"):
                yield node


def _look_at_what_is_kept(node, leaves, numbers):
    """numbers: how many float32 values a row may be kept beside the arguments."""
    for name, value in vars(node).items() if hasattr(node, "__dict__") else ():
        if any(isinstance(one, torch.Tensor) for one in _inside(value)):
            raise Finding(
                "kept-on-ctx",
                f"`ctx.{name}` holds a tensor. Only `ctx.save_for_backward` keeps it without leaking, and notices when "
                "somebody changes it before the backward pass.",
            )
    kept = [t.detach() for t in node.saved_tensors if t is not None]
    tensors = [a.detach() for a in leaves if isinstance(a, torch.Tensor)]
    more = 4 * numbers * (tensors[0].numel() // max(tensors[0].shape[-1], 1))
    got, most = sum(t.nbytes for t in kept), sum(a.nbytes for a in tensors) + more
    if got > most:
        raise Finding(
            "saves-too-much",
            f"{got} bytes are kept for the backward pass, and the arguments with {numbers} numbers a row are {most}. "
            "What can the backward pass compute again from these?",
        )
    others = [t for t in kept if not any(_is_of(t, a) for a in tensors)]
    if sum(t.nbytes for t in others) > more:
        shape = tuple(max(others, key=lambda t: t.nbytes).shape)
        raise Finding(
            "saves-too-much",
            f"A tensor of shape {shape} is kept for the backward pass that is no argument, and more than {numbers} "
            "number a row. What can the backward pass compute again from the arguments?",
        )


def _inside(value):
    """The value itself, or what a list, a tuple or a dict of such holds."""
    if isinstance(value, dict):
        value = list(value.values())
    return itertools.chain.from_iterable(map(_inside, value)) if isinstance(value, (list, tuple)) else iter((value,))


def _is_of(tensor, argument):
    """Whether it lies in an argument's memory, or is a copy of some of its numbers."""
    if tensor.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr():
        return True
    return bool(torch.isin(tensor.double(), argument.double()).all())


# ---- an operator ---------------------------------------------------------------------------------------------------


def operators(names):
    """Cases: "gives", "describes", "examined" or "compiled", then the operator's arguments."""
    operator = names["operator"]
    kinds = {"gives": _called, "describes": _described, "examined": _examined, "compiled": _compiled}

    def run(kind, *args):
        if not isinstance(operator, torch._library.custom_ops.CustomOpDef):
            raise Finding("no-operator", "`operator` is a plain function. `torch.library.custom_op` makes it one.")
        with torch._C.DisableTorchFunction():  # the check's own watch over allocations
            return kinds[kind](operator, *args)

    return run


def _called(operator, *args):
    before = hooks.launches()
    y = operator(*args)
    if hooks.launches() == before:
        raise Finding("no-kernel", "No kernel ran. The operator's body calls your kernel.")
    return y


def _described(operator, *args):
    """The fake result, as a tensor of its shape and dtype; strides and launches are looked at here."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    real, before = operator(*args), hooks.launches()
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        try:
            fake = operator(*fakes)
        except Exception as error:
            raise Finding(
                "no-description",
                "The operator cannot say what it returns without computing it "
                f"({type(error).__name__}). `register_fake` describes the result from shapes alone.",
            ) from None
    if hooks.launches() != before:
        raise Finding("description-computes", "The description launched a kernel. It has shapes, and no numbers.")
    _same_form(fake, real)
    return FINE


def _same_form(fake, real):
    for what, told, made in (
        ("shape", tuple(fake.shape), tuple(real.shape)),
        ("dtype", str(fake.dtype), str(real.dtype)),
        ("strides", fake.stride(), real.stride()),
    ):
        if told != made:
            raise Finding(
                "wrong-description",
                f"The description promises the {what} {told}, and the operator returns {made}: compiled code would "
                "read the wrong memory.",
            )


def _examined(operator, *args):
    try:
        torch.library.opcheck(operator, args, test_utils=("test_schema", "test_faketensor"))
    except Exception as error:
        first = str(error).strip().splitlines()[0][:200]
        raise Finding("opcheck", f"PyTorch's own examination, `torch.library.opcheck`, says: {first}") from None
    return FINE


def _compiled(operator, *args):
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda x, *rest: operator(x * 2, *rest) + 1, backend=keep, fullgraph=True)
    try:
        y = compiled(*args)
    except Exception as error:
        first = str(error).strip().splitlines()[0][:160]
        raise Finding("graph-break", f"`torch.compile(fullgraph=True)` stops: {first}") from None
    called = [node for graph in graphs for node in graph.graph.nodes if "OpOverload" in type(node.target).__name__]
    if len(graphs) != 1 or len(called) != 1:
        raise Finding("graph-break", f"The operator is not one node of one graph: {len(graphs)} graphs were made.")
    return y


# ---- a layer -------------------------------------------------------------------------------------------------------


def layers(names):
    """Cases: what to look at, and the name of the layer's class in `transformers` that is to be replaced."""
    swap = names["swap"]
    kinds = {"replaced": _replaced, "numbers": _same_numbers, "names": _same_names, "parameters": _same_parameters}
    kinds |= {"settings": _own_settings, "bfloat16": _in_bfloat16}

    def run(kind, theirs):
        with torch._C.DisableTorchFunction():
            kinds[kind](swap, theirs)
        return FINE

    return run


def tiny_llama():
    """A Llama of 2 layers with random weights, each norm with weights and an eps of its own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=61, max_position_embeddings=32)).eval()
    for i, layer in enumerate(norms(model)):
        torch.nn.init.normal_(layer.weight, 1.0, 0.2)
        layer.variance_epsilon = (1e-5, 0.3)[i % 2]
    return model


def norms(model):
    return [layer for layer in model.modules() if hasattr(layer, "variance_epsilon")]


def _swapped(swap, model):
    given = copy.deepcopy(model)
    after = swap(given)
    return given if after is None else after


def _left(model, theirs):
    return [path for path, layer in model.named_modules() if type(layer).__name__ == theirs]


def _tokens():
    return torch.arange(14).view(2, 7) * 4


def _replaced(swap, theirs):
    model = tiny_llama()
    wanted = len(_left(model, theirs))
    after = _swapped(swap, model)
    if left := _left(after, theirs):
        raise Finding("layer-left", f"{len(left)} of {wanted} layers are still {theirs}, first {left[0]}.")
    before = hooks.launches()
    with torch.no_grad():
        after(_tokens())
    if hooks.launches() - before < wanted:
        raise Finding(
            "no-kernel", f"{hooks.launches() - before} kernels ran for {wanted} layers. Whose numbers are it?"
        )


def _compare(before, after, tolerance, code, sentence):
    with torch.no_grad():
        wanted, got = before(_tokens()).logits, after(_tokens()).logits
    if got.dtype != wanted.dtype:
        raise Finding("wrong-dtype", f"The logits are {got.dtype}, and before the swap they were {wanted.dtype}.")
    off = (got.double() - wanted.double()).abs().max().item()
    if not off <= tolerance * wanted.abs().max().item():
        raise Finding(code, f"{sentence} The logits are off by {off:.2g}.")


def _same_numbers(swap, theirs):
    model = tiny_llama()
    for layer in norms(model):
        layer.variance_epsilon = 1e-5
    _compare(model, _swapped(swap, model), 1e-4, "other-numbers", "The swapped model computes something else.")


def _own_settings(swap, theirs):
    model = tiny_llama()
    sentence = "Each layer of a model may have settings of its own, such as eps."
    _compare(model, _swapped(swap, model), 1e-4, "settings-lost", sentence)


def _in_bfloat16(swap, theirs):
    model = tiny_llama().bfloat16()
    _compare(model, _swapped(swap, model), 0.05, "other-numbers", "In bfloat16 the swapped model goes astray.")


def _same_names(swap, theirs):
    model = tiny_llama()
    checkpoint, after = model.state_dict(), _swapped(swap, model)
    got, wanted = set(after.state_dict()), set(checkpoint)
    if got != wanted:
        odd = sorted(got ^ wanted)[0]
        raise Finding("names-changed", f"A checkpoint would no longer load: {odd} is on one side only.")
    fresh = {name: value + 1 for name, value in checkpoint.items()}
    try:
        after.load_state_dict(fresh)
    except RuntimeError as error:
        raise Finding("names-changed", f"A checkpoint does not load: {str(error).splitlines()[-1].strip()}") from None
    stale = [name for name, value in after.state_dict().items() if not torch.equal(value, fresh[name])]
    if stale:
        raise Finding("names-changed", f"{stale[0]} keeps its old numbers when a checkpoint is loaded.")


def _same_parameters(swap, theirs):
    model = tiny_llama()
    given = copy.deepcopy(model)
    before = {id(parameter) for parameter in given.parameters()}
    after = swap(given) or given
    if strangers := [name for name, parameter in after.named_parameters() if id(parameter) not in before]:
        raise Finding(
            "parameters-copied",
            f"{strangers[0]} is a new parameter. An optimiser that was made before the swap would train the old one: "
            "hand the parameter itself over.",
        )


# ---- tests ---------------------------------------------------------------------------------------------------------


def suites(names):
    """Cases: the entry and the code of an implementation, on which the tests are tried; or nothing, for MUTANTS.

    Whether the implementation is right is not known in here.
    """

    def run(*args):
        with hooks.guard("record"):  # an access outside is a wrong kernel's, and no mistake of the tests
            return _tried(names, *args) if args else _mutants(names.get("MUTANTS"))

    return run


def _tried(names, entry, code):
    """Raises `Told` with the first test that fails and what it says."""
    try:
        given = implementation(code, entry)
    except Exception as error:
        raise Told(f"no test\n{type(error).__name__}: it does not even run") from None
    if found := failure(names, given):
        raise Told("\n".join(found))
    return FINE


def _mutants(listed):
    """MUTANTS as the bytes of a JSON text."""
    well_formed = isinstance(listed, (list, tuple)) and all(map(_is_mutant, listed))
    text = json.dumps([list(one) for one in listed] if well_formed else []).encode()
    return torch.frombuffer(bytearray(text[:_MOST_TEXT]), dtype=torch.uint8)


def _is_mutant(one):
    return isinstance(one, (list, tuple)) and len(one) == 3 and all(isinstance(text, str) for text in one)


def tests_of(names):
    """The answer's tests, `test_...`, each with the arguments of its `parametrize` marks."""
    for name, test in list(names.items()):
        if name.startswith("test_") and callable(test):
            marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
            for values in itertools.product(*(_values(mark) for mark in marks)):
                yield name, test, {key: value for one in values for key, value in one.items()}


def _values(mark):
    """What each set of values gives its names, as pytest reads them: one name in a string takes a tuple as it is."""
    names, sets = [*mark.args, *(mark.kwargs[key] for key in ("argnames", "argvalues") if key in mark.kwargs)][:2]
    whole = isinstance(names, str) and "," not in names
    names = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
    for one in sets:
        values = one.values if type(one).__name__ == "ParameterSet" else (one,) if whole else one
        yield dict(zip(names, values, strict=True))


def failure(names, implementation):
    """(name of the test, what it said) of the first test that fails, or None."""
    for name, test, values in tests_of(names):
        try:
            test(implementation, **values)
        except BaseException as error:  # pytest's own failures are no Exception
            if isinstance(error, (KeyboardInterrupt, MemoryError, SystemExit)):
                raise
            return name, f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return None


_MOST_TEXT = 1 << 20  # bytes of MUTANTS
_counter = itertools.count()


def implementation(code, entry):
    """The function `entry` of this code, in a module of its own that Triton can read the source of."""
    name = f"<implementation {next(_counter)}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    module = types.ModuleType(f"implementation_{next(_counter)}")
    sys.modules[module.__name__] = module
    vars(module).update(torch=torch, triton=triton, tl=tl, math=math)
    exec(compile(code, name, "exec", dont_inherit=True), vars(module))
    return vars(module)[entry]


# ---- a benchmark ---------------------------------------------------------------------------------------------------


_FEWEST_RUNS = 4  # one to compile, three for a middle one


class PretendedGpu:
    """A GPU that is a clock and nothing else, so that a benchmark can be judged without one. Times in milliseconds.

    A call of `kernel(size)` puts work into a queue and returns at once. The first call with a size compiles. A kernel
    whose data the cache still holds takes a third of the time. Every fifth run something else runs beside it, and no
    two runs take equally long: of any few in a row the median is nearly the same, and the fastest is not.
    """

    COMPILE, LAUNCH, WARM, FLUSH, DISTURBED = 350.0, 0.004, 1 / 3, 0.4, 6.0
    SPREAD = 0.06  # between the fastest and the slowest undisturbed run
    MIDDLE = 0.625  # of the undisturbed runs are faster than the median of all: a fifth is slower than any of them

    def __init__(self, seed):
        self._now, self._busy_until = 0.0, 0.0
        self._compiled, self._cached, self._runs = set(), None, 0
        self._first = random.Random(seed).random()
        self.calls = {}

    @staticmethod
    def cold(size):
        """What the median run with a cold cache takes: a launch's fixed part, and the bytes at 4 TB/s."""
        return 0.003 + 8 * size / 4e9

    def kernel(self, size):
        """Queue the kernel for `size` elements."""
        if size not in self._compiled:
            self._compiled.add(size)
            self._now += self.COMPILE
        took = self.cold(size) * (self.WARM if self._cached == size else 1.0)
        self._runs += 1
        took *= 1 + self.SPREAD * ((self._first + self._runs * 0.6180339887) % 1.0 - self.MIDDLE)
        if self._runs % 5 == 0:
            took *= self.DISTURBED
        self._now += self.LAUNCH
        self._queue(took)
        self._cached = size
        self.calls[size] = self.calls.get(size, 0) + 1

    def flush_cache(self):
        """Queue a write over the whole cache."""
        self._now += self.LAUNCH
        self._queue(self.FLUSH)
        self._cached = None

    def synchronize(self):
        """Wait until the queue is empty."""
        self._now = max(self._now, self._busy_until)

    def clock(self):
        """The host's time."""
        return self._now

    def _queue(self, took):
        self._busy_until = max(self._busy_until, self._now) + took


def benchmarks(names):
    """Cases: the seed of the GPU, then the sizes."""
    benchmark = names["benchmark"]

    def run(seed, *sizes):
        gpu = PretendedGpu(seed)
        told = benchmark(gpu, list(sizes))
        if not isinstance(told, dict):
            raise Finding(
                "wrong-type", f"`benchmark` returns a dict of milliseconds by size, not {type(told).__name__}."
            )
        once = [size for size in sizes if size in told and gpu.calls.get(size, 0) < _FEWEST_RUNS]
        if once:
            runs = gpu.calls.get(once[0], 0)
            raise Finding("too-few-runs", f"Size {once[0]} ran {runs} times, the first to compile: that has no median.")
        return torch.tensor([float(told.get(size, math.nan)) for size in sizes])

    return run
