"""From the options that were given to a complete config: defaults filled in, everything checked, nothing ignored."""

import types
from collections.abc import Mapping
from typing import Any

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.options.conditions import algorithm_of, is_central, is_natural, uses_estimates, watches_exemplars
from fedseq.options.config import OPTIONS, Config, all_options
from fedseq.options.config_files import coerce
from fedseq.options.datasets import OWN, check_dataset_name
from fedseq.options.grammar import parse_algorithm, parse_train, trackers_of
from fedseq.options.option import flag
from fedseq.options.privacy_plan import check_privacy
from fedseq.options.tables import check_criterion
from fedseq.simulation.attacks import number_of_attackers, parse_attack

DEVICES = ("cpu", "cuda", "mps")
DEVICES_OF = {"processes": ("cpu", "cuda"), "ray": ("cpu",)}  # engines that do not know them all


def resolve(given: Mapping[str, Any], before: Mapping[str, Any] | None = None, *, lenient: bool = False) -> Config:
    """The config of a run with these options; an option that the run would not use is refused.

    `before` holds options that `given` goes over, such as a saved run's: those that the run does not use any more are
    dropped, and so is one that is given as None, or "null" in a file: it goes back to its default. `lenient` drops
    unused given ones too, for sweeps in which another run uses them.
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
    if unused:
        config = _complete({name: value for name, value in chosen.items() if name not in unused})
    _check(config)
    return config


def recorded(values: Mapping[str, Any]) -> Config:
    """The config that a run folder tells of. Nothing is refused or made up: it was resolved when the run was begun."""
    return _complete({"kernels": "torch", **read_options(values)}, fill_rules=False)


def resolve_with_object(given: Mapping[str, Any], name: str, shape: str) -> Config:
    """As `resolve`, for an Algorithm object: its hyper-parameters are its own, and no options.

    Its rounds have the shape of those of fedavg, fedseq or fedseqinter, and so it uses the same options.
    """
    of_rules = sorted(name for name in given if name not in OPTIONS and name in all_options())
    if of_rules:
        raise FedSeqError(
            f"{flag(of_rules[0])} has no effect in this run: the algorithm is given as an object, and has what that "
            f"was made with. Leave it out, or make the object with it: {of_rules[0]}={given[of_rules[0]]!r}."
        )
    config = resolve({**given, "algorithm": shape})
    if algorithm_of(config).superclients and not algorithm_of(types.SimpleNamespace(algorithm=name)).superclients:
        name = f"{shape}+{name}"  # by which reports know it
    return _complete({**config.options(), "algorithm": name}, fill_rules=False)


def read_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values in their options' types, by name. None, or "null" in a file, leaves an option to its default."""
    found = {}
    for written, value in values.items():
        name = _name(written)
        converted = coerce(name, value)
        if converted is not None:
            found[name] = converted
    return found


def _name(written: str) -> str:
    return written.replace("-", "_") if "." not in written else written


def _complete(chosen: Mapping[str, Any], fill_rules: bool = True) -> Config:
    """A config with these values and the defaults of all others, of which each may follow from those before it."""
    options = types.SimpleNamespace(**{name: chosen.get(name) for name in OPTIONS})
    for name, found in OPTIONS.items():
        if getattr(options, name) is None:
            setattr(options, name, found.default_for(options))
    rules = {name: value for name, value in chosen.items() if name not in OPTIONS}
    if fill_rules:
        algorithm, everything = algorithm_of(options), all_options()
        own = {part.partition(":")[2] for part in algorithm.own}
        rules = {name: value for name, value in rules.items() if name.partition(".")[0] in own} | {
            name: rules.get(name, everything[name].default_for(options)) for name in algorithm.parameters()
        }
    chosen_rules = sorted((name, value) for name, value in rules.items() if value is not None)
    return Config(**vars(options), rules=tuple(chosen_rules))


def _check_values(chosen: Mapping[str, Any]) -> None:
    """Each by itself: ranges and choices."""
    everything = all_options()
    for name, value in chosen.items():
        found = everything.get(name)
        if found is None:  # of a user's own rule, whose function will tell
            continue
        if found.choices is not None and value not in found.choices:
            raise unknown(name.replace("_", " "), value, found.choices)
        if found.range is not None and not found.range.holds(value):
            raise FedSeqError(f"{flag(name)} must be {found.range.words}, not {value}.")


def _check(config: Config) -> None:
    """What does not fit together, before any work starts."""
    algorithm, rules = algorithm_of(config), dict(config.rules)
    if algorithm.superclients:
        estimates = uses_estimates(config)
        check_criterion(config.approximator if estimates else None, config.metric if estimates else None, config.method)
    if rules.get("scaffold_option") == 2 and config.momentum:
        raise FedSeqError("scaffold option 2 needs plain SGD. Set --momentum 0 or use --scaffold-option 1.")
    if "relay" in config.algorithm.split("+") and config.momentum:
        raise FedSeqError("relay has a momentum of its own. Set --momentum 0.")
    if "relay" in config.algorithm.split("+") and config.clip_norm is not None:
        raise FedSeqError(
            "relay steps along its velocity, which --clip-norm would cut in place of the gradient. Leave it out."
        )
    check_privacy(config)
    if config.attack is not None:
        parse_attack(config.attack)
        if is_central(config) or not is_natural(config):  # of clients that exist the number is in the data
            number_of_attackers(config.attackers, config.num_clients)
    parse_train(config.train)
    trackers_of(config.track)
    if watches_exemplars(config) and not config.exemplars:
        raise FedSeqError("--gate-check exemplars needs public exemplars. Leave --exemplars at 1 or more.")
    kind = config.device.split(":")[0]
    if kind not in DEVICES:
        raise unknown("device", config.device, DEVICES)
    if kind not in DEVICES_OF.get(config.engine, DEVICES):
        raise FedSeqError(
            f"--engine {config.engine} does not compute on {kind}. Chains are trained on it one after another with "
            "--engine serial; or use --device cpu."
        )
    if kind != "cpu" and config.engine == "processes" and not config.workers:
        raise FedSeqError(
            f"each worker process takes memory of its own on {kind}. Say how many: --workers 2, or --engine serial."
        )
    if config.holdout is not None and config.holdout_by == "clients" and config.clients_by is None:
        raise FedSeqError("--holdout-by clients needs clients that exist. Say what tells them apart: --clients-by.")
    if config.alpha == 0 and config.partition in ("hsu", "official"):
        raise FedSeqError(
            f"partition '{config.partition}' draws from Dir(alpha) and needs --alpha > 0; at 0 use shards."
        )


def _no_effect(names: list[str], config: Config) -> FedSeqError:
    everything = all_options()
    reasons = [
        f"{flag(name)} has no effect in this run: it is for {everything[name].use.words}"
        if name in everything
        else f"'{name}' has no effect in this run: its algorithm '{config.algorithm}' has no rule {name.split('.')[0]}"
        for name in names
    ]
    return FedSeqError(f"{'; '.join(reasons)}. Leave {'it' if len(names) == 1 else 'them'} out.")
