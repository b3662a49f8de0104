"""Turn a kernel into JSON and back: its source, and of the names it uses only those that it needs.

A compile job runs in another process, which has never seen the notebook.  So the kernel travels as source text with the
line numbers it has in its file, together with the @triton.jit functions that it calls, constants, and the names of the
modules it uses.  Kernels from files travel in the same way: the worker never sees an older version of an edited module.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import collections
import dis
import importlib
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from gfxlab.bound import unwrap
from gfxlab.code.errors import ShippingError

_SIMPLE = (type(None), bool, int, float, str)


# ---- packing: in the notebook's process ------------------------------------------------------------------------------


def pack(kernel: Any, constants: Sequence[tuple[str, Any]] = ()) -> dict[str, Any]:
    """A kernel as JSON, and the constants that a launch gives it: pairs of a parameter's name and a value.

    Raises:
        ShippingError: the source is not available, or the kernel uses what is no function, module or constant, or is
            given such a thing.
    """
    packer = _Packer()
    packer.add(kernel)
    values = [packer.constant(parameter, value) for parameter, value in constants]
    return {"functions": packer.functions, "constants": values}


def _fields(kind: Any) -> list[str] | None:
    """Names of a named tuple's parts, of its class; None of any other class."""
    named = isinstance(kind, type) and issubclass(kind, tuple)
    return list(kind._fields) if named and hasattr(kind, "_fields") else None


class _Packer:
    def __init__(self) -> None:
        self.functions: list[dict[str, Any]] = []
        self._known: dict[Any, int] = {}

    def add(self, kernel: Any) -> int:
        """Pack one function and those it refers to; gives its place in `functions`."""
        fn = unwrap(kernel)
        if fn in self._known:
            return self._known[fn]
        place = self._known[fn] = len(self.functions)
        start, lines = _source(kernel, fn)
        entry = {
            "name": fn.__name__,
            "full_name": [fn.__module__, fn.__qualname__],
            "filename": fn.__code__.co_filename,
            "start": start,
            "lines": lines,
            "annotations": bool(fn.__code__.co_flags & __future__.annotations.compiler_flag),
            "noinline": bool(getattr(kernel, "noinline", False)),
            "kind": "constexpr_function" if type(kernel).__name__ == "ConstexprFunction" else "jit",
        }
        self.functions.append(entry)
        entry["names"] = {name: self._name(fn.__name__, name, value) for name, value in _names(fn, lines)}
        return place

    def constant(self, parameter: str, value: Any) -> Any:
        """What a launch gives to a parameter, as JSON."""
        try:
            return self.encode(value)
        except TypeError as unknown:
            raise ShippingError(
                f"{self.functions[0]['name']}: the constexpr {parameter} is a {unknown}, which cannot be handed to the "
                "compiler's process; use a number, a string, a Triton type or a @triton.jit function"
            ) from None

    def encode(self, value: Any) -> Any:
        """A constant as JSON: a number, a string, None, a tl.constexpr, a Triton type, a function, or a tuple of such.

        Raises:
            TypeError: it is something else.
        """
        if isinstance(value, _SIMPLE):
            return {"value": value}
        if isinstance(value, tuple | list):
            items = [self.encode(item) for item in value]
            fields = _fields(type(value))
            return {"tuple": items} if fields is None else {"named": [fields, items]}
        if isinstance(value, tl.constexpr):
            return {"constexpr": self.encode(value.value)}
        if isinstance(value, tl.dtype):
            return {"dtype": str(value)}
        if _is_jit(value):
            return self._function(value)
        if (fields := _fields(value)) is not None:
            return {"fields": [value.__name__, fields, self.encode(tuple(value._field_defaults.values()))]}
        raise TypeError(type(value).__name__)

    def _function(self, function: Any) -> dict[str, Any]:
        home = unwrap(function)
        if not home.__module__.startswith("triton."):
            return {"function": self.add(function)}
        return {"attribute": [home.__module__, home.__qualname__]}

    def _name(self, owner: str, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        try:
            return self.encode(value)
        except TypeError:
            pass
        module, qualname = getattr(value, "__module__", None) or "__main__", getattr(value, "__qualname__", name)
        if inspect.isfunction(value) and not module.startswith("triton."):
            raise ShippingError(f"{owner} calls {name}, a plain Python function; put @triton.jit above it")
        if module != "__main__" and _attribute(module, qualname) is value:
            return {"attribute": [module, qualname]}
        raise ShippingError(
            f"{owner} uses {name}, a {type(value).__name__}, which a kernel cannot use; pass its parts as arguments"
        )


def _is_jit(value: Any) -> bool:
    # looks at the class's name, because importing the interpreter's class is left to gfxlab.engine
    return type(value).__name__ in ("JITFunction", "InterpretedFunction", "ConstexprFunction") or (
        type(value).__module__.startswith("triton.runtime") and hasattr(value, "fn")
    )


def _source(kernel: Any, fn: Callable) -> tuple[int, list[str]]:
    """First line number and lines of a function, decorators blanked out."""
    while not hasattr(kernel, "raw_src") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if hasattr(kernel, "raw_src"):  # as it was when it was decorated; the file may have changed since
        lines, start = list(kernel.raw_src), kernel.starting_line_number
    else:
        try:
            lines, start = inspect.getsourcelines(fn)
        except (OSError, TypeError):
            raise ShippingError(
                f"the source of {fn.__name__} cannot be read; define it in a file or in a notebook cell"
            ) from None
    lines = textwrap.dedent("".join(lines)).splitlines(keepends=True)
    tree = ast.parse("".join(lines)).body[0]
    first = tree.lineno - 1  # of `def`
    return start, ["\n"] * first + lines[first:]


def _names(fn: Callable, lines: list[str]) -> Iterator[tuple[str, Any]]:
    """The global and enclosing names that a function uses, its annotations and defaults included, with their values."""
    scope = dict(zip(fn.__code__.co_freevars, (cell.cell_contents for cell in fn.__closure__ or ())))
    scope = {**fn.__globals__, **scope}
    tree = ast.parse("".join(lines)).body[0]
    early = {node.id for node in ast.walk(tree.args) if isinstance(node, ast.Name)}
    written = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used = set(_loaded(fn.__code__)) | set(fn.__code__.co_freevars)
    for name in sorted(early | used & written):  # the interpreter's copy of a function uses names nobody wrote
        if name in scope and name != fn.__name__:
            yield name, scope[name]


def _loaded(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _loaded(constant)


def _attribute(module: str, qualname: str) -> Any:
    try:
        value: Any = importlib.import_module(module)
        for part in qualname.split("."):
            value = getattr(value, part)
        return value
    except (ImportError, AttributeError):
        return None


# ---- unpacking: in the worker ----------------------------------------------------------------------------------------


def unpack(packed: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The @triton.jit functions of a packed kernel, the kernel itself first, and the launch's constants."""
    entries = packed["functions"]
    for entry in entries:
        _import_what_it_names(entry)
    for entry in entries:
        _remember_source(entry)
    namespaces = [{"__name__": "kernel", "__builtins__": builtins} for _ in entries]
    made = [_make(entry, namespace) for entry, namespace in zip(entries, namespaces)]
    for entry, namespace in zip(entries, namespaces):
        namespace.update({name: _decode(value, made) for name, value in entry["names"].items()})
    return made, [_decode(value, made) for value in packed["constants"]]


def _import_what_it_names(entry: dict[str, Any]) -> None:
    """Classes of the author's own modules: while their files are still read as they are."""
    for value in entry["names"].values():
        if "attribute" in value:
            _attribute(*value["attribute"])


def _decode(value: dict[str, Any], functions: list[Any]) -> Any:
    ((kind, content),) = value.items()
    if kind == "value":
        return content
    if kind == "tuple":
        return tuple(_decode(item, functions) for item in content)
    if kind == "named":
        fields, items = content
        return named(fields)(*(_decode(item, functions) for item in items))
    if kind == "fields":
        name, fields, defaults = content
        return collections.namedtuple(name, fields, defaults=_decode(defaults, functions))
    if kind == "constexpr":
        return tl.constexpr(_decode(content, functions))
    if kind == "dtype":
        return tl.dtype(content)
    if kind == "module":
        return importlib.import_module(content)
    if kind == "attribute":
        return _attribute(*content)
    return functions[content]


def named(fields: Sequence[str]) -> type:
    """A class of named tuples: Triton asks for the names of the parts, never for the class."""
    return collections.namedtuple("Named", fields)


def _remember_source(entry: dict[str, Any]) -> None:
    """Let `inspect` find the function where it stands in its file, which need not exist here."""
    name, first = entry["filename"], entry["start"] - 1
    lines = list(linecache.cache[name][2]) if name in linecache.cache else []
    lines += ["\n"] * (first + len(entry["lines"]) - len(lines))
    end = first + len(entry["lines"])
    lines[first:end] = entry["lines"]
    for i in range(end, len(lines)):  # what it stood in, were it indented, would read as more of its body
        if lines[i].strip() and not lines[i][0].isspace():
            break
        lines[i] = "\n"
    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def _make(entry: dict[str, Any], namespace: dict[str, Any]) -> Any:
    # names in annotations and defaults are needed now; functions among them are not possible there
    plain = {name: v for name, v in entry["names"].items() if "function" not in v}
    namespace.update({name: _decode(value, []) for name, value in plain.items()})
    text = "\n" * (entry["start"] - 1) + "".join(entry["lines"])
    flags = __future__.annotations.compiler_flag if entry["annotations"] else 0
    exec(compile(text, entry["filename"], "exec", flags=flags, dont_inherit=True), namespace)
    fn = namespace[entry["name"]]
    fn.__module__, fn.__qualname__ = entry["full_name"]  # by these the compiler tells functions of one name apart
    if entry["kind"] == "constexpr_function":
        made = triton.constexpr_function(fn)
    else:
        made = JITFunction(fn, noinline=entry["noinline"] or None)
    namespace[entry["name"]] = made
    return made
