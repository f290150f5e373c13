"""From the options that were given to a complete config: defaults filled in, everything checked, nothing ignored."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.options import conditions as on
from fedseq.options.config import OPTIONS, Config, all_options
from fedseq.options.config_files import coerce
from fedseq.options.datasets import OWN, check_dataset_name
from fedseq.options.grammar import authors_parts, known_parts, parse_algorithm, parse_train, trackers_of
from fedseq.options.option import flag
from fedseq.options.tables import ENGINES, PARTITIONS, check_criterion
from fedseq.simulation.attacks import number_of_attackers, parse_attack

DEVICES = ("cpu", "cuda", "mps")


def resolve(given: Mapping[str, Any], before: Mapping[str, Any] | None = None, *, lenient: bool = False) -> Config:
    """The config of a run with these options; an option that the run would not use is refused.

    `before` holds options that `given` overrides, such as a saved run's: those that the run does not use any more are
    dropped, and one that is given as None, or "null" in a file, goes back to its default. `lenient` also drops unused
    options that were given, for sweeps in which another run uses them.
    """
    asked, saved = read_options(given), read_options(before or {})
    cleared = {_name(written) for written in given} - set(asked)
    chosen = {**{name: value for name, value in saved.items() if name not in cleared}, **asked}
    if chosen.get("dataset") != OWN:
        check_dataset_name(chosen.get("dataset", OPTIONS["dataset"].default))
    parse_algorithm(chosen.get("algorithm", OPTIONS["algorithm"].default))
    _check_values(chosen)
    config = _complete(chosen)
    unused = set(chosen) - set(config.options())
    if not lenient and unused & set(asked):
        raise _no_effect(sorted(unused & set(asked)), config)
    for part in authors_parts(config.authors_code) if not lenient else ():
        if not on.AUTHORS[part].holds(config):
            raise FedSeqError(f"--authors-code {part} has no effect in this run: it is for {on.AUTHORS[part].words}.")
    if unused:
        config = _complete({name: value for name, value in chosen.items() if name not in unused})
    _check(config)
    return config


def recorded(values: Mapping[str, Any]) -> Config:
    """The config recorded in a run folder; it was checked when the run was started."""
    return _complete({"kernels": "torch", **read_options(values)}, fill_rules=False)


def resolve_with_object(given: Mapping[str, Any], name: str, shape: str) -> Config:
    """As `resolve`, for an Algorithm object, which carries its own hyper-parameters.

    `shape` is fedavg, fedseq or fedseqinter: the named algorithm whose rounds look alike, and which uses the same
    options.
    """
    of_rules = sorted(name for name in given if name not in OPTIONS and name in all_options())
    if of_rules:
        raise FedSeqError(
            f"{flag(of_rules[0])} has no effect in this run: the algorithm is given as an object, which carries its "
            f"own hyper-parameters. Leave it out, or make the object with it: {of_rules[0]}={given[of_rules[0]]!r}."
        )
    config = resolve({**given, "algorithm": shape})
    if config.parts.superclients and not known_parts(name).superclients:
        name = f"{shape}+{name}"  # reports read the topology from the name
    return _complete({**config.options(), "algorithm": name}, fill_rules=False)


def read_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values in their options' types, by name. None, or "null" in a file, leaves an option to its default."""
    typed = {_name(written): coerce(_name(written), value) for written, value in values.items()}
    return {name: value for name, value in typed.items() if value is not None}


def _name(written: str) -> str:
    return written if "." in written else written.replace("-", "_")


def _complete(chosen: Mapping[str, Any], fill_rules: bool = True) -> Config:
    """Fill in defaults in field order; a default may depend on the fields before it."""
    given: dict[str, Any] = {name: chosen.get(name) for name in OPTIONS}
    config = Config(**given)
    values = vars(config)  # the record is frozen for everybody else
    for name, row in OPTIONS.items():
        if values[name] is None:
            values[name] = row.default_for(config)
    rules = {name: value for name, value in chosen.items() if name not in OPTIONS}
    if fill_rules:
        everything, own = all_options(), {part.partition(":")[2] for part in config.parts.own}
        rules = {name: value for name, value in rules.items() if name.partition(".")[0] in own} | {
            name: rules.get(name, everything[name].default_for(config)) for name in config.parts.parameters()
        }
    values["rules"] = tuple(sorted((name, value) for name, value in rules.items() if value is not None))
    return config


def _check_values(chosen: Mapping[str, Any]) -> None:
    """Check each value by itself: ranges and choices. The function of a user's own rule checks its parameters."""
    everything = all_options()
    for name, value in chosen.items():
        row = everything.get(name)
        if row and row.choices is not None and value not in row.choices:
            raise unknown(name.replace("_", " "), value, row.choices)
        if row and row.range is not None and not row.range.holds(value):
            raise FedSeqError(f"{flag(name)} must be {row.range.words}, not {value}.")


def _check(config: Config) -> None:
    """Refuse what does not fit together, before any work starts."""
    if config.parts.superclients:
        estimated = config.uses_estimates
        check_criterion(
            config.approximator if estimated else None, config.grouping_metric if estimated else None, config.grouping
        )
    if config.attack is not None:
        parse_attack(config.attack)
        if config.centralized or not config.real_clients:  # real clients are counted when the data is read
            number_of_attackers(config.attacker_fraction, config.num_clients)
    parse_train(config.trainable)
    trackers_of(config.track)
    kind = config.device.split(":")[0]
    if kind not in DEVICES:
        raise unknown("device", config.device, DEVICES)
    if message := next(_misfits(config, kind), None):
        raise FedSeqError(message)


def _misfits(config: Config, device: str) -> Iterator[str]:
    """What does not fit together in this config, each with what to do about it."""
    for rule in config.parts.rules().values():
        yield from (refusal.message for refusal in rule.refuses if refusal.holds(config))
    if config.private:
        noise = config.dp_noise_multiplier
        if noise is None and config.dp_target_epsilon is None:
            yield (
                "--dp-clip-norm alone promises nothing: give --dp-noise-multiplier, or --dp-target-epsilon to compute "
                "it."
            )
        if math.isinf(config.dp_clip_norm or 0.0) and (noise or noise is None):
            yield "noise is measured in units of --dp-clip-norm, which is infinite. Give a finite --dp-clip-norm."
        if config.eval_clients:
            yield "--eval-clients shows how well the model fits single clients, and no noise hides that. Leave it out."
        if config.private_rounds and config.uses_estimates:
            yield (
                f"--grouping {config.grouping} groups clients by their data, and with --dp-mechanism round nothing "
                "hides that: every chain would depend on every client. Use --grouping random, or --dp-mechanism visit."
            )
    if config.checks_exemplars and not config.exemplars:
        yield "--update-check exemplars needs public exemplars. Set --exemplars to 1 or more."
    engine = ENGINES.row(config.engine)
    if device not in engine.devices:
        yield (
            f"--engine {config.engine} does not compute on {device}. Chains are trained on it one after another with "
            "--engine serial; or use --device cpu."
        )
    if device != "cpu" and engine.workers and not config.workers:
        yield (
            f"each worker process takes memory of its own on {device}. Choose how many: --workers 2, or --engine "
            "serial."
        )
    if config.holdout is not None and config.holdout_by == "clients" and config.clients_by is None:
        yield "--holdout-by clients needs real clients. Name the column that tells them apart: --clients-by."
    dealt = PARTITIONS.get(config.partition or "")
    if config.alpha == 0 and dealt is not None and dealt.dirichlet:
        yield f"partition '{config.partition}' draws from Dir(alpha) and needs --alpha > 0; at 0 use shards."


def _no_effect(names: list[str], config: Config) -> FedSeqError:
    everything = all_options()
    reasons = [
        f"{flag(name)} has no effect in this run: it is for {everything[name].when.words}"
        if name in everything
        else f"'{name}' has no effect in this run: its algorithm '{config.algorithm}' has no rule {name.split('.')[0]}"
        for name in names
    ]
    return FedSeqError(f"{'; '.join(reasons)}. Leave {'it' if len(names) == 1 else 'them'} out.")
