"""How a run shows itself in a notebook: a line with a curve below it, and its metrics as a table."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedseq.basics.errors import FedSeqError

if TYPE_CHECKING:
    from pandas import DataFrame

Curve = Sequence[tuple[int, float]]

WIDTH, HEIGHT = 360, 120
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 10, 20  # room for the axes' numbers
GRID = (0, 0.5, 1)
COLOUR = "#2f6fdf"


def as_frame(metrics: Sequence[dict[str, Any]]) -> "DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise FedSeqError("run.frame() needs pandas, which is missing: pip install '.[notebook]'") from error
    return pandas.DataFrame(metrics, columns=None if metrics else ["round"]).set_index("round")


def as_html(text: str, folder: str, curve: Curve, rounds: int) -> str:
    picture = curve_svg(curve, rounds, f"Accuracy over rounds: {text}") if curve else ""
    return f"<div>{escape(text)}<br><code>{escape(folder)}</code><br>{picture}</div>"


def curve_svg(curve: Curve, rounds: int, described: str) -> str:
    """Accuracy (0..1) over rounds, in the colour of the text around it; `described` is what it says without eyes."""
    last = max(rounds, 2)

    def x(round_: float) -> float:
        return LEFT + (round_ - 1) / (last - 1) * (WIDTH - LEFT - RIGHT)

    def y(accuracy: float) -> float:
        return TOP + (1 - accuracy) * (HEIGHT - TOP - BOTTOM)

    lines = "".join(f"M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}" for share in GRID)
    numbers = "".join(_text(LEFT - 6, y(share) + 3.5, "end", f"{share:.0%}") for share in GRID)
    rounds_axis = _text(LEFT, HEIGHT - 5, "start", "round 1") + _text(WIDTH - RIGHT, HEIGHT - 5, "end", str(rounds))
    points = " ".join(f"{x(round_):.1f},{y(accuracy):.1f}" for round_, accuracy in curve)
    end = "".join(f'<circle cx="{x(r):.1f}" cy="{y(a):.1f}" r="2.5" fill="{COLOUR}"/>' for r, a in curve[-1:])
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" fill="currentColor" '
        f'style="max-width:100%;font:10px sans-serif"><title>{escape(described)}</title>{numbers}{rounds_axis}'
        f'<path d="{lines}" stroke="currentColor" opacity="0.2"/>'
        f'<polyline points="{points}" fill="none" stroke="{COLOUR}" stroke-width="1.5"/>{end}</svg>'
    )


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
