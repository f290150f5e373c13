"""Form superclients without training, and measure how good they are."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedseq.basics.errors import FedSeqError
from fedseq.cli import add_config_flags, config_from, given_options
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.options.config_files import coerce
from fedseq.options.option import flag
from fedseq.report.formats import TextTable
from fedseq.runs.folder import new_folder, slug

if TYPE_CHECKING:
    from fedseq.grouping.study import Study

EXAMPLE = """fedseq group --dataset digits --alpha 0.2 --all
  fedseq group --dataset digits --grouping exchange
  fedseq group --dataset digits --all --pretrain-epochs 1,5,10,20"""

Published = Callable[[str, str | None, str | None, str], tuple[float, float] | None]
OPTIONS = (
    "dataset", "data_dir", "clients_by", "label_column", "holdout", "holdout_by", "num_clients", "alpha", "partition",
    "exemplars", "augment", "model", "batch_size", "lr", "weight_decay", "approximator", "grouping_metric", "grouping",
    "min_samples", "max_clients", "authors_code", "group_estimate", "seed", "engine", "workers",
    "ray_address", "device",
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help="try every valid combination of approximator, metric and grouping"
    )
    parser.add_argument(
        "--pretrain-epochs", metavar="E[,E...]", help="epochs of pre-training, or several to compare (default: 10)"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for the results (used again, it skips the pre-training)")
    add_config_flags(parser, OPTIONS)


def main(arguments: Namespace) -> None:
    from fedseq.api.grouping_study import make_study, prepare, refuse_others_results, write_tables
    from fedseq.paper.published_tables import published_quality

    config = config_from(arguments)
    _refuse_unused(arguments, config.grouping)
    if arguments.out:
        refuse_others_results(Path(arguments.out))
    epochs = [coerce("pretrain_epochs", word) for word in str(arguments.pretrain_epochs or 10).split(",")]
    if any(count is None or count < 1 for count in epochs):
        raise FedSeqError("--pretrain-epochs must be 1 or more.")
    console = make_console()
    with ConsoleReporter(console) as reporter:
        prepared = prepare(config, arguments.all, reporter)
        made = slug(config.spread) if config.real_clients else f"alpha{config.alpha:g}"
        name = f"group-{slug(config.dataset)}-{made}"
        folder = Path(arguments.out) if arguments.out else new_folder(Path("runs"), name)
        study = make_study(prepared, epochs, folder, reporter)
    print_table(console, quality_table(study, published_quality))
    for path in (*write_tables(study, folder), *draw(study, folder)):
        console.print(str(path), markup=False)


def _refuse_unused(arguments: Namespace, method: str | None) -> None:
    """As everywhere, an option that would have no effect is a mistake."""
    chosen = [
        flag(name) for name in ("grouping", "approximator", "grouping_metric") if name in given_options(arguments)
    ]
    if arguments.all and chosen:
        raise FedSeqError(f"--all tries every criterion, so {' and '.join(chosen)} would have no effect.")
    if arguments.pretrain_epochs is not None and method == "random" and not arguments.all:
        raise FedSeqError("--grouping random needs no pre-training, so --pretrain-epochs would have no effect.")


def quality_table(study: "Study", published: Published) -> TextTable:
    """Ours, and beside it the paper's mean over alpha 0, 0.2 and 0.5 where it has one."""
    from fedseq.grouping.study import quality_rows

    config = study.config
    values = {criterion: published(config.dataset, *criterion) for criterion, _ in quality_rows(study)}
    columns = ["approximator", "metric", "method", "balance ratio", "covered classes", "distinct classes",
               "fewest classes", "superclients", "clients each"]  # fmt: skip
    if any(values.values()):
        columns.append("paper: balance / covered, mean over alphas")
    rows = []
    for criterion, found in quality_rows(study):
        means, value = found.means(), values[criterion]
        rows.append([
            *(part or "-" for part in criterion), f"{means['balance']:.3f}", f"{means['covered']:.3f}",
            f"{means['distinct']:.2f}", str(found.fewest_classes), str(len(found.clients)), f"{means['clients']:.2f}",
            *([f"{value[0]:.3f} / {value[1]:.3f}" if value else "-"] if any(values.values()) else []),
        ])  # fmt: skip
    made = config.spread if config.real_clients else f"alpha {config.alpha:g}"
    title = f"{config.dataset}, {made}, seed {config.seed}: mean over superclients, and the fewest classes of one"
    return TextTable(columns, rows, title, left=3)


def draw(study: "Study", folder: Path) -> Iterator[Path]:
    """Pictures of the study; yields what was drawn."""
    from fedseq.grouping.study import label
    from fedseq.report import figures

    groups = {label(formed.criterion): formed.grouping.groups for formed in study.formed}
    yield figures.violins(study.counts, groups, folder / "violins.png")
    if study.similarity:
        yield figures.similarity_maps(study.similarity, folder / "similarity.png")
    if len(study.similarity) > 1:
        yield figures.similarity_norms(study.similarity, folder / "similarity-norm.png")
    if study.reductions:
        shares = {
            name: {epochs: reduction.kept / max(1, reduction.possible) for epochs, reduction in by_epochs.items()}
            for name, by_epochs in study.reductions.items()
        }
        yield figures.components_kept(shares, folder / "components.png")
