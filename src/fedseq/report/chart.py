"""Curves in a terminal, for where no picture can be shown."""

from collections.abc import Mapping, Sequence

Curve = Sequence[tuple[int, float]]
MARKS = "ox+*#@%&"


def chart(curves: Mapping[str, Curve], width: int = 72, height: int = 16) -> str:
    """Accuracy (0..1) over rounds, one mark a curve; later curves are drawn over earlier ones."""
    last = max((round_ for curve in curves.values() for round_, _ in curve), default=1)
    grid = [[" "] * width for _ in range(height)]
    for mark, curve in zip(MARKS, curves.values(), strict=False):
        for round_, accuracy in curve:
            column = (round_ - 1) * (width - 1) // max(last - 1, 1)
            grid[height - 1 - round(accuracy * (height - 1))][column] = mark
    percent = [f"{100 * (height - 1 - row) // (height - 1):3d}%" if row % 5 == 0 else "    " for row in range(height)]
    lines = [f"{label} |{''.join(cells).rstrip()}" for label, cells in zip(percent, grid, strict=True)]
    legend = "   ".join(f"{mark} {name}" for mark, name in zip(MARKS, curves, strict=False))
    return "\n".join([*lines, f"     +{'-' * width}", f"      1{f'round {last}':>{width - 1}}", f"      {legend}"])
