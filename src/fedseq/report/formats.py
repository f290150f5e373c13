"""A table as plain text cells, and what can be made of it: Markdown, LaTeX, CSV."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedseq.basics.errors import FedSeqError

PICTURES = (".png", ".pdf", ".svg")


def check_picture(path: Path) -> None:
    if path.suffix not in PICTURES:
        raise FedSeqError(f"cannot draw into {path}. Give a name that ends in {', '.join(PICTURES)}.")


@dataclass(frozen=True)
class TextTable:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    left: int = 1  # columns of words, set to the left; the others hold numbers

    def widths(self) -> list[int]:
        return [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]


def to_markdown(table: TextTable) -> str:
    """Columns are aligned, so that it can be read as it stands."""
    widths = [max(3, width) for width in table.widths()]
    rule = ["-" * width if i < table.left else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    lines = [_set(table, table.columns, widths), rule, *(_set(table, row, widths) for row in table.rows)]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return (f"{table.title}\n\n" if table.title else "") + text + (f"\n{table.caption}\n" if table.caption else "")


def _set(table: TextTable, cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    pairs = enumerate(zip(cells, widths, strict=True))
    return [cell.ljust(width) if i < table.left else cell.rjust(width) for i, (cell, width) in pairs]


def to_latex(table: TextTable) -> str:
    """A tabular for booktabs; title and caption are comments."""
    alignment = "l" * table.left + "r" * (len(table.columns) - table.left)
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", _tex_line(table.columns), r"\midrule"]
    lines += [*map(_tex_line, table.rows), r"\bottomrule", r"\end{tabular}"]
    comments = [f"% {line}" for text in (table.title, table.caption) for line in text.splitlines()]
    return "\n".join([*comments, *lines]) + "\n"


_TEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$",
    ">": r"$>$", **{plain: f"\\{plain}" for plain in "%_&#${}"},
})  # fmt: skip


def _tex_line(cells: Iterable[str]) -> str:
    return " & ".join(re.sub(r"\balpha\b", r"$\\alpha$", cell.translate(_TEX)) for cell in cells) + r" \\"


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[float | str | None]]) -> str:
    """Numbers in full; what is not there is empty. No text is a formula to a spreadsheet."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell for cell in row])
    return file.getvalue()


_FORMULA = re.compile(r"[=+@\t\r]|-.")  # as text begins that spreadsheets compute; a dash alone stands for nothing
