"""Which values an option may have, as a condition and in words."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    holds: Callable[[Any], bool]
    words: str


POSITIVE = Range(lambda value: value > 0 and math.isfinite(value), "greater than 0")
AT_LEAST_0 = Range(lambda value: value >= 0 and math.isfinite(value), "0 or more")
AT_LEAST_1 = Range(lambda value: value >= 1, "1 or more")
SHARE = Range(lambda value: 0 < value <= 1, "greater than 0 and at most 1")
FROM_0_TO_1 = Range(lambda value: 0 <= value <= 1, "from 0 to 1")
BELOW_1 = Range(lambda value: 0 <= value < 1, "at least 0 and less than 1")
