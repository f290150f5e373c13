"""What a function or an object is, as plain data that JSON holds: by it a continued run knows what it was made of.

What is part of FedSeq, PyTorch or Python is known by its name. A user's own function or class is known by its name and
by a digest of what it does: its compiled code, defaults, what it closes over, and what of the user's it calls. Where it
stands in its file, and comments, do not count. Another version of Python compiles it differently.
"""

import dataclasses
import hashlib
import inspect
import json
import re
import sys
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

KNOWN = {"fedseq", "torch", "numpy"} | sys.stdlib_module_names
NO_CODE = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__"}


def function_name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def plain(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """`seen` holds what is being described already, as functions may call each other."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if id(value) in seen:
        return "itself"
    seen = (*seen, id(value))
    if isinstance(value, dict):
        return {str(key): plain(inner, seen) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, seen) for inner in value]
    if isinstance(value, partial):
        return _partial(value, seen)
    if isinstance(value, type | FunctionType):
        return _callable(value, seen)
    if isinstance(value, MethodType):
        return {"function": function_name(value), "of": plain(value.__self__, seen)}
    return _object(value, seen)


def _partial(value: "partial[Any]", seen: tuple[int, ...]) -> dict[str, Any]:
    found = plain(value.func, seen)
    described = found if isinstance(found, dict) else {"function": found}
    arguments = {"arguments": plain(value.args, seen)} if value.args else {}
    return {**described, **arguments, **plain(value.keywords, seen)}


def _callable(value: Any, seen: tuple[int, ...]) -> Any:
    if not is_own(value):
        return function_name(value)
    parts = _class_parts(value, seen) if isinstance(value, type) else _function_parts(value, seen)
    return {"function": function_name(value), "code": _digest([sys.version_info[:2], parts])}


def own_layers(module: Any) -> Any:
    """What a module's layers of a user's classes do; others are known by what the module prints."""
    return plain([*dict.fromkeys(type(layer) for layer in module.modules() if is_own(type(layer)))])


def is_own(value: Any) -> bool:
    """A user's function or class."""
    return (getattr(value, "__module__", None) or "").partition(".")[0] not in KNOWN


def _function_parts(function: FunctionType, seen: tuple[int, ...]) -> list[Any]:
    closed = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    named = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    called = {name: value for name, value in named.items() if not inspect.ismodule(value) and is_own_or_plain(value)}
    defaults = (function.__defaults__, function.__kwdefaults__, closed, dict(sorted(called.items())))
    return [_code(function.__code__, function.__doc__), *(plain(part, seen) for part in defaults)]


def is_own_or_plain(value: Any) -> bool:
    """Also numbers that are read: of modules, tensors, arrays and dicts. Lists are what programs keep notes in."""
    if hasattr(value, "state_dict") and not isinstance(value, type):
        return True
    if callable(value):
        return is_own(value)
    arrays = hasattr(value, "tobytes") or hasattr(value, "detach")
    return arrays or isinstance(value, bool | int | float | str | tuple | dict)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not yet
        return False


def _class_parts(found: type, seen: tuple[int, ...]) -> list[Any]:
    parts: list[Any] = []
    for one in found.__mro__:
        for name, value in sorted(vars(one).items()) if is_own(one) else ():
            inner = getattr(value, "__func__", getattr(value, "fget", value))  # of class methods and properties
            if name not in NO_CODE and (isinstance(inner, FunctionType) or is_own_or_plain(inner)):
                parts.append([name, _function_parts(inner, (*seen, id(inner))) if isinstance(inner, FunctionType)
                              else plain(inner, seen)])  # fmt: skip
    return parts


def _names(code: CodeType) -> set[str]:
    return {
        *code.co_names,
        *(name for inner in code.co_consts if isinstance(inner, CodeType) for name in _names(inner)),
    }


def _code(code: CodeType, doc: str | None = None) -> list[Any]:
    values = [value for value in code.co_consts if doc is None or value != doc]
    constants = [_code(value) if isinstance(value, CodeType) else _constant(value) for value in values]
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]


def _constant(value: Any) -> str:
    return repr(sorted(value, key=repr) if isinstance(value, frozenset) else value)


def _object(value: Any, seen: tuple[int, ...]) -> Any:
    """Tensors and modules by their numbers, an object of a user's class by what it holds, others by what they print."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), seen) for field in dataclasses.fields(value)}
    if hasattr(value, "state_dict"):
        return {"printed": _printed(value), "holds": plain(dict(value.state_dict()), seen), "set": _settings(value)}
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if hasattr(value, "tobytes"):
        return f"{value.dtype}{list(value.shape)} {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    if is_own(type(value)) and hasattr(value, "__dict__"):
        return {"class": _callable(type(value), seen), "holds": plain(vars(value), seen)}
    return function_name(value) if callable(value) else _printed(value)


def _settings(module: Any) -> dict[str, Any]:
    """What a module and those in it were made with and neither print nor hold, such as a loss's label smoothing."""
    parts = dict(module.named_modules()) if hasattr(module, "named_modules") else {"": module}
    found = {
        f"{part}.{name}": value
        for part, inner in parts.items()
        for name, value in vars(inner).items()
        if isinstance(value, bool | int | float | str) and not name.startswith("_")
    }
    return {name: value for name, value in found.items() if not name.endswith(".training")}  # which a run switches


def _printed(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
