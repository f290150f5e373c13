"""Types of what JSON files hold, checked by one decoder.

A form is a type, None, a list of one form, a tuple of alternatives, or names with forms; "name?" may be absent:

    {"round": int, "accuracy": (float, None), "skipped?": [dict]}

A float is finite, and an int stands for one too; no number has more than 64 bits, and true is no number.
"""

import json
import math
from typing import Any

Form = Any


def fits(value: Any, form: Form) -> bool:
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(one, form[0]) for one in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            fits(value[key], part) if (key := name.removesuffix("?")) in value else name.endswith("?")
            for name, part in form.items()
        )
    if form in (int, float) and type(value) is int:
        return -(2**63) <= value < 2**63
    return value is None if form is None else type(value) is form and (form is not float or math.isfinite(value))


def decode(text: bytes | str, form: Form) -> Any:
    """What JSON text holds; a ValueError where it is none, or has another form."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not fits(value, form):
        wrong = [name for name in form if not fits(value, {name: form[name]})] if isinstance(form, dict) else []
        named = " and ".join(name.removesuffix("?") for name in wrong) if isinstance(value, dict) else "its whole"
        raise ValueError(f"{named or 'a value'} is missing or of another type")
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")
