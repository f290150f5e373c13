"""A table in the terminal, as Markdown, CSV and LaTeX. A cell reads: ours (the paper's, the difference)."""

import csv
import io
from collections.abc import Iterator, Sequence

from rich.table import Table

from fedseq.paper.cells import Block, Cell

LEGEND = "A cell reads: ours ± std over seeds (the paper's, difference)."


def cell_text(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return cell
    return f"{own_text(cell)} ({', '.join(_theirs(cell))})"


def own_text(cell: Cell) -> str:
    if cell.ours is None:
        return cell.note or "not run"
    text = cell.ours.text(lambda value: f"{value:.{cell.decimals}f}")
    return f"{text}, {cell.aside}" if cell.aside else text


def _theirs(cell: Cell) -> Iterator[str]:
    yield "-" if cell.published is None else f"{cell.published:.{cell.decimals}f}"
    if cell.published_aside:
        yield cell.published_aside
    if cell.difference is not None:
        yield f"{cell.difference:+.{cell.decimals}f}"


def to_terminal(block: Block) -> Table:
    table = Table("", title=block.heading, caption="; ".join(block.notes) or None, title_justify="left",
                  caption_justify="left")  # fmt: skip
    for column in block.columns:
        table.add_column(column, justify="right")
    for name, cells in block.rows.items():
        table.add_row(name, *map(cell_text, cells))
    return table


def to_markdown(title: str, blocks: Sequence[Block], notes: Sequence[str]) -> str:
    lines = [f"# {title}", "", LEGEND, *(f"\n{note}" for note in notes if note)]
    for block in blocks:
        lines += ["", f"## {block.heading}", ""]
        lines += ["| | " + " | ".join(block.columns) + " |", "|---" + "|--:" * len(block.columns) + "|"]
        lines += [f"| {name} | " + " | ".join(map(cell_text, cells)) + " |" for name, cells in block.rows.items()]
        lines += [f"\n{note}" for note in block.notes]
    return "\n".join(lines) + "\n"


CSV_COLUMNS = ("block", "row", "column", "ours", "std", "seeds", "rounds", "beside", "published", "published_beside",
               "difference", "note")  # fmt: skip


def to_csv(blocks: Sequence[Block]) -> str:
    """A line for each cell, numbers in full."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for block in blocks:
        for name, cells in block.rows.items():
            for column, cell in zip(block.columns, cells, strict=True):
                if isinstance(cell, str):
                    if cell:
                        writer.writerow([block.heading, name, column, *[""] * 8, cell])
                    continue
                ours = cell.ours
                own = [ours.mean, "" if ours.std is None else ours.std, ours.count] if ours else ["", "", ""]
                note = "" if ours else cell.note or "not run"
                writer.writerow([
                    block.heading, name, column, *own, cell.rounds, cell.aside, _blank(cell.published),
                    cell.published_aside, _blank(cell.difference), note,
                ])  # fmt: skip
    return file.getvalue()


def _blank(value: float | None) -> float | str:
    return "" if value is None else value


def to_latex(title: str, blocks: Sequence[Block]) -> str:
    parts = []
    for block in blocks:
        lines = [r"\begin{tabular}{l" + "r" * len(block.columns) + "}", r"\toprule"]
        lines += [" & ".join(["", *map(_tex, block.columns)]) + r" \\", r"\midrule"]
        lines += [" & ".join([_tex(name), *(_tex(cell_text(cell)) for cell in cells)]) + r" \\"
                  for name, cells in block.rows.items()]  # fmt: skip
        lines += [r"\bottomrule", r"\end{tabular}"]
        parts += [f"% {block.heading}", *lines, ""]
    head = [f"% {title}", f"% {LEGEND}", r"% needs \usepackage{booktabs}", ""]
    return "\n".join([*head, *parts])


def _tex(text: str) -> str:
    for plain, written in (("\\", r"\textbackslash "), ("%", r"\%"), ("_", r"\_"), ("&", r"\&"), ("±", r"$\pm$"),
                           (">", r"$>$"), ("alpha", r"$\alpha$")):  # fmt: skip
        text = text.replace(plain, written)
    return text
