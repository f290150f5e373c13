"""What a function or an object is, as plain data that JSON holds: by it a continued run knows what it was made of.

What is part of FedSeq, PyTorch or Python is known by its name. A user's own function or class is known by its name and
a digest of its compiled code, its defaults, and what it closes over or reads of the user's. Compiled, because the
source of a lambda is the whole line it stands in. Comments and the place in the file do not count.
"""

import hashlib
import json
import re
import sys
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from fedseq.basics.errors import FedSeqError

_KNOWN = {"fedseq", "torch", "numpy"} | sys.stdlib_module_names
_NO_CODE = {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__"}


def function_name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def own_layers(module: Any) -> Any:
    """What a module's layers of a user's classes do; others are known by what the module prints."""
    return plain([*dict.fromkeys(type(layer) for layer in module.modules() if _is_own(type(layer)))])


def plain(value: Any) -> Any:
    try:
        return _plain(value, {})
    except RecursionError:
        raise FedSeqError(f"{function_name(value)} holds objects nested too deeply to recognise it again.") from None


def _is_own(value: Any) -> bool:
    """A user's function or class."""
    return (getattr(value, "__module__", None) or "").partition(".")[0] not in _KNOWN


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """`seen` are the functions described so far, as they call each other, and what this value is a part of."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if id(value) in seen:
        return f"{function_name(value)} again"
    seen[id(value)] = value
    found = _described(value, partial(_plain, seen=seen))
    if not isinstance(value, type | FunctionType):
        del seen[id(value)]
    return found


def _described(value: Any, plain: Any) -> Any:
    match value:
        case dict():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case set() | frozenset():
            return sorted((plain(inner) for inner in value), key=json.dumps)  # the order in a set is by chance
        case CodeType():
            return [value.co_code.hex(), *map(plain, (value.co_names, value.co_varnames, value.co_consts))]
        case partial():
            inner = plain(value.func)
            arguments = {"arguments": plain(value.args)} if value.args else {}
            return {**(inner if isinstance(inner, dict) else {"function": inner}), **arguments, **plain(value.keywords)}
        case MethodType():
            return {"function": function_name(value), "of": plain(value.__self__)}
        case type() | FunctionType():
            if not _is_own(value):
                return function_name(value)
            parts = plain(_class_parts(value) if isinstance(value, type) else _function_parts(value))
            digest = hashlib.sha256(json.dumps([sys.version_info[:2], parts]).encode()).hexdigest()
            return {"function": function_name(value), "code": digest[:16]}
        case ModuleType():
            return value.__name__
    if hasattr(value, "state_dict"):
        holds, printed = plain(dict(value.state_dict())), _printed(value)
        return {"printed": printed, "holds": holds, "set": _settings(value), "class": plain(type(value))}
    if hasattr(value, "cpu") and hasattr(value, "detach"):  # files have a `detach` too
        value = value.detach().cpu().numpy()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)} {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    if _is_own(type(value)) and (state := object.__getstate__(value)):
        return {"class": plain(type(value)), "holds": plain(state)}
    return function_name(value) if callable(value) else _printed(value)


def _function_parts(function: FunctionType) -> list[Any]:
    """Of what the code reads: not lists, which programs keep notes in."""
    closed = [cell.cell_contents for cell in function.__closure__ or () if cell != type(cell)()]  # empty ones: not yet
    known = function.__globals__
    read = {name: known[name] for name in sorted(_names(function.__code__)) if name in known and _counts(known[name])}
    code = [value for value in function.__code__.co_consts if value != function.__doc__]
    return [
        function.__code__.replace(co_consts=tuple(code)),
        function.__defaults__,
        function.__kwdefaults__,
        closed,
        read,
    ]


def _class_parts(found: type) -> list[Any]:
    members = [member for one in found.__mro__ if _is_own(one) for member in sorted(vars(one).items())]
    inner = [(name, getattr(value, "__func__", getattr(value, "fget", value))) for name, value in members]
    return [(name, value) for name, value in inner if name not in _NO_CODE and _counts(value)]


def _counts(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return False
    if callable(value) and not hasattr(value, "state_dict"):
        return _is_own(value)
    arrays = any(hasattr(value, name) for name in ("state_dict", "tobytes", "cpu"))
    return arrays or isinstance(value, bool | int | float | str | tuple | dict | set | frozenset)


def _names(code: CodeType) -> set[str]:
    return {*code.co_names}.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _settings(module: Any) -> dict[str, Any]:
    """What a module was made with and neither prints nor holds, such as label smoothing; `training` a run switches."""
    return {
        f"{part}.{name}": value
        for part, inner in (module.named_modules() if hasattr(module, "named_modules") else [("", module)])
        for name, value in vars(inner).items()
        if isinstance(value, bool | int | float | str) and not name.startswith("_") and name != "training"
    }


def _printed(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
