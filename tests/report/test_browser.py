"""The page in a real browser: no error, no request, curves, toggles, sorting, both themes, a phone's width."""

import json
import shutil
import threading

import pytest

from fedseq.report import page
from fedseq.report.page import make_server, summarise
from fedseq.runs.reading import Broken, read_all

from .builders import make_run, record
from .test_epsilon import make_private

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium: apt-get install chromium"),
]
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    hop = {"unit": 0, "client": 3, "reason": "offline"}
    make_run(folder / "c", [0.5, 1.0], algorithm="centralized")
    make_run(folder / "avg", [0.1, 0.2, 0.5, 0.72])
    for seed in (0, 1):
        make_run(folder / f"seq{seed}", [0.2, 0.8, 0.9, 0.9 - seed / 20], algorithm="fedseq", seed=seed, skipped=[hop])
    make_run(folder / "now", [0.2, 0.6], algorithm="fedseqinter", finished=False, rounds=9)
    found = [*read_all([folder]), Broken(folder / "bad", "line 3 of metrics.jsonl is damaged.")]
    return page.write(folder / "report.html", summarise(found))


class Page:
    """An open page, and everything it complained about or asked for."""

    def __init__(self, browser, address, width=1200, scheme="light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.problems, self.requests = [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def curves(self):
        return self.page.eval_on_selector_all("path.curve", "all => all.map((one) => one.dataset.series)")

    def column(self, table, number):
        cells = f"#{table} tbody tr td:nth-child({number})"
        return self.page.eval_on_selector_all(cells, "all => all.map((one) => one.textContent)")


@pytest.fixture
def opened(browser, report):
    shown = Page(browser, report.as_uri())
    yield shown
    shown.context.close()
    assert shown.problems == []
    assert shown.requests == [report.as_uri()]


def test_it_loads_alone_and_draws_every_curve(opened):
    assert sorted(opened.curves()) == ["fedavg", "fedseq", "fedseqinter"]
    lengths = opened.page.eval_on_selector_all("path.curve", "all => all.map((one) => one.getTotalLength())")
    assert min(lengths) > 50
    assert opened.page.locator(".band").count() == 1  # two seeds of fedseq
    assert "sooner than FedAvg" in opened.page.locator("#headline").text_content()
    assert "line 3 of metrics.jsonl" in opened.page.locator("#broken").text_content()
    assert opened.page.locator("#dataset-choice").is_hidden()


def test_a_toggle_hides_a_curve_and_brings_it_back(opened):
    chip = opened.page.locator('.chip[data-label="fedseq"]')
    chip.click()
    assert sorted(opened.curves()) == ["fedavg", "fedseqinter"]
    assert chip.get_attribute("aria-pressed") == "false"
    opened.page.keyboard.press("Enter")  # the button keeps the focus
    assert "fedseq" in opened.curves()
    opened.page.get_by_role("button", name="none").click()
    assert opened.curves() == []


def test_the_tables_sort_both_ways_and_blanks_stay_last(opened):
    first = opened.page.locator("#convergence thead button", has_text="final accuracy")
    first.click()
    assert opened.column("convergence", 1)[-1] == "centralized"
    first.click()
    assert opened.column("convergence", 1)[0] == "centralized"
    rounds = opened.page.locator("#costs thead button", has_text="rounds")
    rounds.click()
    names = opened.column("costs", 1)
    assert names[0] == "fedseq"
    rounds.click()
    assert opened.column("costs", 1)[0] == "fedseq"  # the others never got there
    heads = opened.page.locator("#costs th[aria-sort]")
    assert heads.count() == 1
    assert heads.get_attribute("aria-sort") == "descending"


def test_other_axes_and_measures_are_drawn(opened):
    for axis in ("updates", "bytes", "seconds", "rounds"):
        opened.page.select_option("#axis", axis)
        assert len(opened.curves()) == 3
    opened.page.select_option("#axis", "seconds")
    assert "slowest chain" in opened.page.locator("#chart-note").text_content()
    for metric in ("loss", "train_loss"):
        opened.page.select_option("#metric", metric)
        assert len(opened.curves()) == 3
    opened.page.check("#smooth")
    opened.page.locator("#chart svg").hover()
    assert "fedavg" in opened.page.locator("#tip").text_content()


def test_the_inside_of_a_run_is_shown(opened):
    assert opened.page.locator("#composition svg rect").count() > 4
    assert opened.page.locator("#per-class svg rect").count() > 4
    assert "offline" in opened.page.locator("#skipped").text_content()
    assert "train 4 s (80 %)" in opened.page.locator("#time").text_content()
    assert "fedseq run --dataset digits --algorithm fedseq" in opened.page.locator("#reproduce").text_content()
    opened.page.select_option("#run", label="fedavg, seed 0")
    assert "no superclients" in opened.page.locator("#composition").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_it_is_switched(browser, report, scheme):
    shown = Page(browser, report.as_uri(), scheme=scheme)
    brightness = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    before = shown.page.evaluate(brightness)
    assert (before > 128) == (scheme == "light")
    shown.page.locator("#theme").click()
    assert (shown.page.evaluate(brightness) > 128) == (scheme == "dark")
    shown.context.close()
    assert shown.problems == []


def test_a_watched_run_grows_on_the_page_and_keeps_what_was_chosen(browser, tmp_path):
    make_run(tmp_path / "avg", [0.1, 0.2, 0.3])
    folder = make_run(tmp_path / "seq", [0.2, 0.3], algorithm="fedseq", finished=False, rounds=9)
    server = make_server(lambda: summarise(read_all([tmp_path]), live=True))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shown = Page(browser, f"http://127.0.0.1:{server.server_address[1]}/")
    try:
        shown.page.locator('.chip[data-label="fedavg"]').click()
        assert shown.page.locator("#live").is_visible()
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record(3, 0.9, [[0, 1], [4, 5]])) + "\n")
        shown.page.locator("#convergence", has_text="3 of 9").wait_for(timeout=20_000)
        assert shown.curves() == ["fedseq"]
    finally:
        shown.context.close()
        server.shutdown()
        server.server_close()
    assert shown.problems == []


def test_data_sets_and_alphas_are_chosen(browser, tmp_path):
    make_run(tmp_path / "a", [0.1, 0.2])
    make_run(tmp_path / "b", [0.1, 0.3], alpha=0.5)
    make_run(tmp_path / "c", [0.1, 0.4], dataset="cifar10", algorithm="fedprox")
    written = page.write(tmp_path / "r.html", summarise(read_all([tmp_path])))
    shown = Page(browser, written.as_uri())
    assert shown.curves() == ["fedavg (alpha 0)"]
    shown.page.select_option("#alpha", label="all")
    assert sorted(shown.curves()) == ["fedavg (alpha 0)", "fedavg (alpha 0.5)"]
    shown.page.select_option("#alpha", label="0.5")
    assert shown.curves() == ["fedavg (alpha 0.5)"]
    assert len(shown.column("convergence", 1)) == 1
    shown.page.select_option("#dataset", label="cifar10")
    assert shown.curves() == ["fedprox"]
    shown.context.close()
    assert shown.problems == []


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 6, 12, 40])
def test_ticks_of_rounds_are_whole_and_distinct(browser, tmp_path, rounds):
    written = page.write(tmp_path / "r.html", summarise(read_all([make_run(tmp_path / "a", [0.5] * rounds)])))
    for width in (1200, 360):
        shown = Page(browser, written.as_uri(), width=width)
        labels = shown.page.eval_on_selector_all("#chart svg text.x-tick", "all => all.map((one) => one.textContent)")
        assert labels == [str(number) for number in sorted(set(map(int, labels)))]
        assert int(labels[-1]) <= max(2, rounds)
        assert len(labels) >= 2
        shown.context.close()


def test_a_table_that_is_cut_says_so(browser, report):
    for width, cut in ((360, True), (1400, False)):
        shown = Page(browser, report.as_uri(), width=width)
        hint = shown.page.locator("#convergence-section .scroll-hint")
        assert hint.is_visible() == cut
        shown.context.close()


def test_a_phone_scrolls_down_only(browser, report):
    shown = Page(browser, report.as_uri(), width=360)
    assert shown.page.evaluate("document.documentElement.scrollWidth") == 360
    box = shown.page.locator("#chart svg").bounding_box()
    assert box["x"] + box["width"] <= 360
    shown.context.close()
    assert shown.problems == []


def test_epsilon_is_an_axis_where_a_run_promises_one(browser, tmp_path):
    make_private(tmp_path / "a", [0.1, 0.2, 0.4], [1.0, 1.5, 2.0])
    make_run(tmp_path / "b", [0.1, 0.3], algorithm="fedprox")
    make_run(tmp_path / "c", [0.1, 0.4], dataset="cifar10")
    shown = Page(browser, page.write(tmp_path / "r.html", summarise(read_all([tmp_path]))).as_uri())
    shown.page.select_option("#axis", "epsilon")
    assert shown.curves() == ["fedavg"]
    assert "promise nothing" in shown.page.locator("#chart-note").text_content()
    assert "2.00" in shown.column("convergence", 5)
    shown.page.locator("#chart svg").hover()
    assert "epsilon" in shown.page.locator("#tip").text_content()
    shown.page.select_option("#dataset", label="cifar10")  # which has none
    assert shown.page.locator("#axis").input_value() == "rounds"
    assert shown.page.locator("#over-epsilon").is_disabled()
    shown.context.close()
    assert shown.problems == []
