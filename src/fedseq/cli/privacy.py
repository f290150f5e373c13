"""Compute the privacy (epsilon) of a run without running it."""

import math
from argparse import ArgumentParser, Namespace
from dataclasses import replace

from fedseq.basics.errors import FedSeqError
from fedseq.cli import add_config_flags, add_trust, options_from
from fedseq.cli.console import make_console, print_table
from fedseq.options.config import Config
from fedseq.options.resolve import resolve
from fedseq.privacy.accountant import accountant, planned, with_noise
from fedseq.report.formats import TextTable

EXAMPLE = """fedseq privacy --algorithm fedavg --num-clients 1000 --rounds 300 --dp-noise-multiplier 1.1
  fedseq privacy --algorithm fedavg --num-clients 1000 --rounds 300 --dp-target-epsilon 8 --dp-mechanism round"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--config", metavar="CONFIG.yaml", help="read options from a file (flags override it)")
    add_trust(parser, "the file")
    add_config_flags(parser, own_rules=True)


def main(arguments: Namespace) -> None:
    given = options_from(arguments)
    config = resolve({"dp_clip_norm": 1.0, **given})  # epsilon does not depend on it
    if config.real_clients:
        from fedseq.rounds.prepare import deal, read_dataset
        from fedseq.training.reporter import QUIET

        clients = len(deal(config, read_dataset(config, QUIET)))
        config = with_noise(replace(config, num_clients=clients), clients)
    print_table(make_console(), promise(config))


def promise(config: Config) -> TextTable:
    """Epsilon over the rounds, for the client that is drawn most often."""
    if config.dp_noise_multiplier is None:
        raise FedSeqError(
            "without noise there is nothing to promise. Give --dp-noise-multiplier or --dp-target-epsilon."
        )
    rows = []
    for rounds in sorted({max(1, config.rounds * share // 4) for share in (1, 2, 3, 4)}):
        found, times = planned(replace(config, rounds=rounds))
        exposed = f"{found.share:.3g} of the units a round" if found.share is not None else f"at most {times}"
        rows.append([str(rounds), exposed, _number(found.epsilon(times))])
    counted = "drawn in secret" if accountant(config, 1.0).share is not None else f"{config.dp_mechanism}s that count"
    caption = (
        f"noise {config.dp_noise_multiplier:g} x clip per {config.dp_mechanism}, delta {config.dp_target_delta:g}; "
        "for the client drawn most often, with 99 % probability"
    )
    return TextTable(["rounds", counted, "epsilon"], rows, caption=caption)


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "none: no noise"
