"""How a run's folder is called."""

import re
from collections.abc import Mapping
from typing import Any

from fedseq.options.config import Config
from fedseq.options.option import brief


def slug(text: str) -> str:
    """A name as a part of a file's."""
    return re.sub("[:/ ]", "-", text)


def run_name(config: Config, special: Mapping[str, Any]) -> str:
    """What tells a run from its neighbours: the algorithm, special options by value or name, alpha and seed."""
    words = [config.algorithm]
    for name, value in special.items():
        words.append(value if isinstance(value, str) else f"{name.replace('_', '-')}{brief(value).lower()}")
    if config.algorithm != "centralized":
        words.append(f"by-{config.clients_by}" if config.real_clients else f"alpha{config.alpha:g}")
    return slug("-".join([*words, f"seed{config.seed}"]))
