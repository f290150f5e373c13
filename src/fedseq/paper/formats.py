"""A table of the paper as text, Markdown, CSV and LaTeX. A cell reads: ours (the paper's, the difference)."""

from collections.abc import Iterator, Sequence

from fedseq.paper.cells import Block, Cell
from fedseq.report.formats import TextTable, to_csv, to_latex, to_markdown

LEGEND = "A cell reads: ours ± std over seeds (the paper's, difference)."


def cell_text(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return cell
    return f"{own_text(cell)} ({', '.join(_theirs(cell))})" if cell.in_paper else own_text(cell)


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


def as_text(block: Block) -> TextTable:
    rows = [[name, *map(cell_text, cells)] for name, cells in block.rows.items()]
    return TextTable(["", *block.columns], rows, block.heading, "; ".join(block.notes))


def markdown(title: str, blocks: Sequence[Block], notes: Sequence[str]) -> str:
    head = [f"# {title}\n", f"{LEGEND}\n", *(f"{note}\n" for note in notes if note)]
    return "\n".join([*head, *(f"## {to_markdown(as_text(block))}" for block in blocks)])


def latex(title: str, blocks: Sequence[Block]) -> str:
    head = f"% {title}\n% {LEGEND}\n% needs \\usepackage{{booktabs}}\n"
    return "\n".join([head, *(to_latex(as_text(block)) for block in blocks)])


CSV_COLUMNS = ("block", "row", "column", "ours", "std", "seeds", "rounds", "beside", "published", "published_beside",
               "difference", "note")  # fmt: skip


def csv(blocks: Sequence[Block]) -> str:
    """A line for each cell, numbers in full."""
    lines: list[list[float | str | None]] = []
    for block in blocks:
        for name, cells in block.rows.items():
            for column, cell in zip(block.columns, cells, strict=True):
                if isinstance(cell, str):
                    if cell:
                        lines.append([block.heading, name, column, *[None] * 8, cell])
                    continue
                ours = cell.ours
                lines.append([
                    block.heading, name, column, *((ours.mean, ours.std, ours.count) if ours else [None] * 3),
                    cell.rounds, cell.aside, cell.published, cell.published_aside, cell.difference,
                    None if ours else cell.note or "not run",
                ])  # fmt: skip
    return to_csv(CSV_COLUMNS, lines)
