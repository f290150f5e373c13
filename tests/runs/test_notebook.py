"""How a run shows itself in a notebook: in a line, as a curve, as a table, and while it goes on."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from fedseq import FedSeqError, Run
from fedseq.options.resolve import resolve
from fedseq.runs.notebook import curve_svg, default_reporter
from fedseq.training.reporter import QUIET

METRICS: list[dict[str, Any]] = [
    {"round": 1, "accuracy": 0.25, "loss": 2.0}, {"round": 2, "train_loss": 1.5}, {"round": 3, "accuracy": 0.75}
]  # fmt: skip
RUN = Run(Path("runs/<a>"), resolve({"rounds": 4}), METRICS, False)


def test_the_repr_is_one_short_line() -> None:
    # rounds // 10 is 0, so the final accuracy is that of the last round
    assert repr(RUN) == "<Run runs/<a>: fedseq on digits, round 3 of 4, final accuracy 0.7500>"
    assert repr(Run(Path("x"), RUN.config, [], False)) == "<Run x: fedseq on digits, round 0 of 4>"


def test_html_has_a_curve_with_a_text_and_escapes_the_folder() -> None:
    html = RUN._repr_html_()
    assert "<code>runs/&lt;a&gt;</code>" in html
    drawing = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    assert drawing[0].text == "Accuracy over rounds: fedseq on digits, round 3 of 4, final accuracy 0.7500"
    assert "<svg" not in Run(Path("x"), RUN.config, [], False)._repr_html_()


def numbers(path: ElementTree.Element | None) -> list[float]:
    assert path is not None
    return [float(word) for word in path.attrib["d"].split() if word not in "MLz"]


def test_a_curve_spans_its_frame() -> None:
    """A straight line from the lower left corner to the upper right one; a single point is drawn too."""
    drawing = ElementTree.fromstring(curve_svg([(1, 0.0), (2, 0.5), (3, 1.0)], 3, ""))
    groups = {group.get("id"): group.find("{*}path") for group in drawing.iter("{http://www.w3.org/2000/svg}g")}
    frame, curve = (numbers(groups[name]) for name in ("patch_2", "line2d_curve"))
    (left, bottom), (right, top) = frame[:2], frame[4:6]
    assert curve == pytest.approx([left, bottom, (left + right) / 2, (bottom + top) / 2, right, top], abs=1e-3)
    assert "line2d_curve" in curve_svg([(1, 0.75)], 1, "")


def test_the_metrics_are_a_table_by_round() -> None:
    frame = RUN.frame()
    assert frame.index.tolist() == [1, 2, 3]
    assert frame["accuracy"].dropna().to_dict() == {1: 0.25, 3: 0.75}
    assert len(Run(Path("x"), RUN.config, [], False).frame()) == 0


def test_without_pandas_the_table_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedSeqError, match=r"pip install '\.\[notebook\]'"):
        RUN.frame()


def test_outside_of_a_notebook_nothing_is_shown() -> None:
    assert default_reporter() is QUIET


@pytest.mark.slow
def test_a_notebook_shows_a_bar_and_the_run() -> None:
    code = "import fedseq\nfedseq.run(algorithm='fedavg', rounds=2, num_clients=10, engine='serial', folder='run')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
    bar, run = notebook.cells[0].outputs
    assert '<progress value="2" max="2"' in bar["data"]["text/html"]
    assert "fedavg on digits: round 2 of 2, accuracy 0." in bar["data"]["text/html"]
    assert run["data"]["text/plain"].startswith("<Run run: fedavg on digits, round 2 of 2")
    assert "<svg" in run["data"]["text/html"]
