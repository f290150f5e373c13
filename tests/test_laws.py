"""Laws that every algorithm obeys, over compositions [fedseq|fedseqinter][+local rule][+server rule][+average].

Where a law says "is", the weights are the same bits.
"""

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedseq
from algorithms.toys import final_state, final_weights
from fedseq import FedSeqError, algorithms
from fedseq.algorithms.base import FEDAVG, aggregate, initial_state
from fedseq.basics import seeds
from fedseq.engines.serial import open_serial
from fedseq.options.grammar import AlgorithmName, parse_algorithm
from fedseq.options.resolve import resolve
from fedseq.options.tables import AVERAGES, ENGINES, LOCAL_RULES, SERVER_RULES, EngineRow
from fedseq.runs.reading import read_run
from fitting import that_fit

LOCALS = ["", *(name for name in LOCAL_RULES if name != "fedavg")]  # which is what no rule is
SERVERS = ["", *SERVER_RULES]


def fits_together(*parts: str) -> bool:
    """A rule's row says what it refuses."""
    try:
        resolve({"dataset": "own", "algorithm": "+".join(filter(None, parts)) or "fedavg"}, lenient=True)
    except FedSeqError:
        return False
    return True


INNERS: list[tuple[str, ...]] = [
    (local, server) for local in LOCALS for server in SERVERS if fits_together(local, server)
]
INNERS += [(average,) for average in AVERAGES]
INNERS += [("feddyn", "ema"), ("scaffold", "fedacg", "window")]
SIZES = [9, 4, 1, 6, 12, 3]
GROUPS = [(0, 3), (4,), (1, 2, 5)]
SINGLETONS = [(k,) for k in range(len(SIZES))]


def compose(*parts: str) -> str:
    return "+".join(part for part in parts if part) or "fedavg"


NAMES = [compose(topology, *inner) for topology in ("", "fedseq", "fedseqinter") for inner in INNERS]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def make_clients(sizes: list[int]) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)) for n in sizes]


CLIENTS = make_clients(SIZES)
OPTIONS = {
    "rounds": 3, "fraction": 0.7, "lr": 0.2, "batch_size": 4, "local_epochs": 2, "seed": 11,
    "weight_decay": 0.01, "eval_every": 100, "engine": "serial",
}  # fmt: skip
RULES = {"mu": 0.3, "alpha_dyn": 0.5}


def train(folder, algorithm, *, clients=CLIENTS, groups=GROUPS, model=network, **options) -> np.ndarray:
    """The final weights of a run."""
    loss = options.pop("loss", nn.functional.cross_entropy)
    parsed = parse_algorithm(algorithm) if isinstance(algorithm, str) else AlgorithmName()
    superclients = parsed.superclients if isinstance(algorithm, str) else algorithm.superclients
    rules = {name: value for name, value in RULES.items() if name in parsed.parameters()}
    chosen = {**OPTIONS, **rules, **options}
    if isinstance(algorithm, str):
        chosen = that_fit(algorithm, **chosen)
    run = fedseq.federate(
        model, clients, CLIENTS[0], algorithm, loss=loss, groups=groups if superclients else None, folder=folder,
        **chosen,
    )  # fmt: skip
    return final_weights(run)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The final weights of an algorithm's run with the options above, run when they are first asked for."""
    return functools.cache(lambda name: train(tmp_path_factory.getbasetemp() / f"usual-{name}", name))


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return bool(np.array_equal(left, right))


# --- neutral values and special cases --------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", ["", "fedseq", "fedseqinter"])
@pytest.mark.parametrize("server", ["", "fedavgm"])
def test_fedprox_with_mu_0_is_fedavg(tmp_path, usual, topology, server):
    plain = usual(compose(topology, server))
    assert same(train(tmp_path, compose(topology, "fedprox", server), mu=0.0), plain)
    assert not same(usual(compose(topology, "fedprox", server)), plain)


@pytest.mark.parametrize("topology", ["", "fedseq", "fedseqinter"])
def test_relay_with_momentum_0_is_fedavg(tmp_path, usual, topology):
    plain = usual(compose(topology))
    assert same(train(tmp_path, compose(topology, "relay"), relay_momentum=0.0), plain)
    assert not same(usual(compose(topology, "relay")), plain)


@pytest.mark.parametrize("algorithm", ["feddyn", "fedseq+feddyn"])
def test_feddyn_tends_to_fedavgs_local_step_as_alpha_falls(tmp_path, algorithm):
    """One round, units of equal size: the clients' mean goes to FedAvg's model in proportion to alpha.

    With two passes a client of a chain has its linear term at the second. (The server's model does not go there: alpha
    cancels in h/alpha.)
    """
    equal = make_clients([6] * 4)
    options = {"clients": equal, "groups": [(0, 1), (2, 3)], "rounds": 1, "fraction": 1.0, "superclient_epochs": 2}
    plain = train(tmp_path / "plain", algorithm.replace("feddyn", "fedavg"), **options)
    gaps = []
    for alpha in (1e-1, 1e-2, 1e-3):
        server = train(tmp_path / f"{alpha}", algorithm, alpha_dyn=alpha, **options)
        state = final_state(tmp_path / f"{alpha}")
        gaps.append(np.abs(state["client_mean"] - final_state(tmp_path / "plain")["weights"]).max())
        assert np.abs(server - plain).max() > 0.1
    assert gaps[0] > 5 * gaps[1] > 25 * gaps[2] > 0
    assert gaps[2] < 1e-3


@pytest.mark.parametrize("inner", INNERS, ids=lambda inner: compose(*inner))
def test_fedseq_of_singletons_is_the_inner_algorithm(tmp_path, usual, inner):
    assert same(train(tmp_path, compose("fedseq", *inner), groups=SINGLETONS), usual(compose(*inner)))


@pytest.mark.parametrize("inner", INNERS, ids=lambda inner: compose(*inner))
def test_fedseqinter_with_period_1_is_fedseq(tmp_path, usual, inner):
    fedseq_ = usual(compose("fedseq", *inner))
    assert same(train(tmp_path, compose("fedseqinter", *inner), merge_every=1), fedseq_)
    assert not same(usual(compose("fedseqinter", *inner)), fedseq_)


@pytest.mark.parametrize("topology", ["", "fedseq", "fedseqinter"])
@pytest.mark.parametrize("option", [1, 2])
def test_scaffolds_first_round_is_fedavg(tmp_path, topology, option):
    def normalised() -> nn.Module:  # option 1's extra pass must leave no trace, in the statistics either
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.2), nn.Linear(5, 3))

    def weights(name: str, rounds: int) -> np.ndarray:
        options = {"model": normalised, "rounds": rounds, "scaffold_option": option}
        return train(tmp_path / f"{name}-{rounds}", compose(topology, name), **options)

    assert same(weights("scaffold", 1), weights("fedavg", 1))
    assert not same(weights("scaffold", 2), weights("fedavg", 2))


def test_scaffolds_extra_pass_leaves_batchnorms_counter_alone(tmp_path):
    """With momentum=None BatchNorm weighs a batch by how many it has counted, so the counter shows in the buffers."""

    def counted() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=None), nn.Linear(5, 3))

    options = {"model": counted, "rounds": 1}
    first = train(tmp_path / "scaffold", "fedseq+scaffold", **options)
    assert same(first, train(tmp_path / "fedseq", "fedseq", **options))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fedavg_with_one_client_is_plain_sgd(tmp_path, momentum):
    """torch.optim.SGD over the same batches; momentum starts anew in every round."""
    x, y = CLIENTS[0]
    found = train(tmp_path, "fedavg", clients=[(x, y)], fraction=1.0, momentum=momentum)
    with torch.random.fork_rng():
        torch.manual_seed(seeds.integer(11, "init"))
        module = network()
    for round_ in (1, 2, 3):
        optimiser = torch.optim.SGD(module.parameters(), lr=0.2, momentum=momentum, weight_decay=0.01)
        rng = seeds.generator(11, "train", round_, 0, 0)
        for _ in range(2):
            for batch in torch.from_numpy(rng.permutation(9)).split(4):  # 4, 4 and the last one
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
                optimiser.step()
    expected = np.concatenate([parameter.detach().numpy().ravel() for parameter in module.parameters()])
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("inner", ["", "fedprox", "scaffold"])
@pytest.mark.parametrize("topology", ["", "fedseq", "fedseqinter"])
def test_fedavgm_with_momentum_0_and_lr_1_is_the_inner_algorithm(tmp_path, usual, topology, inner):
    """Up to rounding: old + (new - old)."""
    neutral = train(tmp_path, compose(topology, inner, "fedavgm"), server_momentum=0.0, server_lr=1.0)
    assert neutral == pytest.approx(usual(compose(topology, inner)), abs=1e-6)


@pytest.mark.parametrize("inner", ["", "fedprox", "scaffold"])
@pytest.mark.parametrize("topology", ["", "fedseq", "fedseqinter"])
def test_fairavg_of_equal_sizes_is_the_inner_algorithm(tmp_path, topology, inner):
    options = {"clients": make_clients([5] * 6), "groups": [(0, 3), (4, 1), (2, 5)]}
    fair = train(tmp_path / "fair", compose(topology, inner, "fairavg"), **options)
    assert same(fair, train(tmp_path / "inner", compose(topology, inner), **options))


def test_fairavg_of_unequal_sizes_is_not(usual):
    assert not same(usual("fairavg"), usual("fedavg"))


NEUTRAL = {"fedacg": {"fedacg_lambda": 0.0}, "ghbm": {"server_momentum": 0.0}, "ema": {"ema_decay": 0.0},
           "window": {"window": 1}}  # fmt: skip


@pytest.mark.parametrize("topology", ["", "fedseq", "fedseqinter"])
@pytest.mark.parametrize("inner", ["", "fedprox", "scaffold"])
@pytest.mark.parametrize("rule", NEUTRAL)
def test_rules_over_rounds_with_neutral_values_are_the_inner_algorithm(tmp_path, rule, inner, topology):
    merges = {"merge_every": 2} if topology == "fedseqinter" else {}
    name = compose(topology, inner, rule)
    plain = train(tmp_path / "plain", compose(topology, inner), rounds=4, **merges)
    assert same(train(tmp_path / "neutral", name, rounds=4, **merges, **NEUTRAL[rule]), plain)
    assert not same(train(tmp_path / "usual", name, rounds=4, **merges), plain)


@pytest.mark.parametrize("inner", ["fedseq", "fedseqinter+fedprox+fedacg", "scaffold+fedavgm", "fedseq+feddyn"])
@pytest.mark.parametrize("average", AVERAGES)
def test_an_average_leaves_what_is_trained_as_it_is(tmp_path, usual, average, inner):
    averaged = train(tmp_path / "averaged", compose(inner, average))
    raw = train(tmp_path / "raw", inner)
    assert not same(averaged, raw) or "fedseqinter" in inner  # which has merged once
    states = [final_state(tmp_path / name) for name in ("averaged", "raw")]
    assert all(same(states[0][name], states[1][name]) for name in states[1])


# --- what a round may not depend on ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_weights_sum_to_one(tmp_path, name):
    """Clients that learn nothing leave the model as it is, whatever is averaged, with or without server state."""

    def nothing_to_learn(output: Tensor, target: Tensor) -> Tensor:
        return 0.0 * output.sum()

    found = train(tmp_path, name, loss=nothing_to_learn, weight_decay=0.0, rounds=4)
    with torch.random.fork_rng():
        torch.manual_seed(seeds.integer(11, "init"))
        start = np.concatenate([parameter.detach().numpy().ravel() for parameter in network().parameters()])
    assert found == pytest.approx(start, abs=1e-6)


class Reversed:
    """The serial engine with the last job's result first."""

    def __init__(self, *args: Any):
        self.engine = open_serial(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def run(self, jobs, stopped):
        yield from reversed(list(self.engine.run(jobs, stopped)))


@pytest.mark.parametrize("name", NAMES)
def test_any_order_of_arrival_gives_the_same_bits_and_so_does_a_second_run(tmp_path, monkeypatch, usual, name):
    first = usual(name)
    monkeypatch.setitem(ENGINES, "serial", EngineRow(f"{__name__}:Reversed"))
    assert same(train(tmp_path, name), first)


@pytest.mark.parametrize("name", ["fedavg", "fedseq+feddyn", "fedseqinter"])
def test_another_seed_gives_another_model(tmp_path, usual, name):
    assert not same(train(tmp_path, name, seed=12), usual(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("answers", [0, 1])
def test_a_round_in_which_nobody_trained_changes_nothing(name, answers):
    """No result at all, or that of a chain whose clients all dropped out: no examples, no uploads, the same model."""
    algorithm = algorithms.build(resolve({"algorithm": name}))
    setting = algorithms.Setting(num_clients=6, num_units=3, units_per_round=2, num_parameters=3)
    before = initial_state(algorithm, torch.arange(4.0), setting)
    start = torch.arange(4.0)
    results: list[Any] = [SimpleNamespace(index=1, start=start, end=start, examples=0, uploads={})][:answers]
    for round_ in (1, 2, 3):  # the third is a merge for FedSeqInter
        after = aggregate(algorithm, before, results, setting, round_)
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in after)


# --- chains ----------------------------------------------------------------------------------------------------------


def test_a_chain_visits_each_client_once_a_pass_in_a_new_order_and_goes_on_from_where_it_was(tmp_path):
    starts: list[Tensor] = []
    ends: list[Tensor] = []

    def record(hop):
        starts.append(hop.start.clone())
        ends.append(hop.weights.clone())
        return {}, {}

    group = tuple(range(len(SIZES)))
    algorithm = algorithms.fedseq(replace(FEDAVG, finish=record))
    run = fedseq.federate(
        network, CLIENTS, CLIENTS[0], algorithm, groups=[group], folder=tmp_path,
        **{**OPTIONS, "rounds": 2, "superclient_epochs": 4},
    )  # fmt: skip
    passes = [chain[i : i + 6] for record_ in run.metrics for chain in record_["clients"] for i in (0, 6, 12, 18)]
    assert all(sorted(order) == list(group) for order in passes)
    assert len({tuple(order) for order in passes}) == len(passes) == 8
    for i in range(1, 24):  # within the round every visit starts where the one before ended, over all passes
        assert torch.equal(starts[i], ends[i - 1])
    assert torch.allclose(starts[24], ends[23], atol=1e-6)  # one superclient: the mean is its model


@pytest.mark.parametrize("inner", ["", "feddyn", "scaffold", "relay", "fedacg"])
def test_superclients_that_are_all_joined_are_one(tmp_path, usual, inner):
    name, everybody = compose("fedseq", inner), [tuple(range(len(SIZES)))]
    joined = train(tmp_path / "joined", name, fraction=1.0, superclients_per_chain=len(GROUPS))
    assert same(joined, train(tmp_path / "one", name, fraction=1.0, groups=everybody))
    assert not same(joined, train(tmp_path / "apart", name, fraction=1.0))


def test_superclients_are_joined_in_the_first_rounds_only(tmp_path):
    """Of 2, 1 and 3 clients, all drawn: two of them make one chain, and the third is left for another."""
    train(tmp_path, "fedseq", fraction=1.0, superclients_per_chain=2, long_chain_rounds=2, rounds=4)
    sizes = [len(group) for group in GROUPS]
    for line in read_run(tmp_path).metrics:
        together = [line["drawn"][:2], line["drawn"][2:]] if line["round"] <= 2 else [[unit] for unit in line["drawn"]]
        assert line["units"] == [units[0] for units in together]
        assert [len(chain) for chain in line["clients"]] == [sum(sizes[unit] for unit in units) for units in together]


def test_slots_start_alike_and_apart(tmp_path):
    """FedSeqInter's slots hold theta_0 at first, the same model again after a merge, and their own in between."""
    for rounds, alike in ((2, False), (3, True), (4, False)):
        train(tmp_path / str(rounds), "fedseqinter", rounds=rounds)
        state = final_state(tmp_path / str(rounds))
        assert same(state["slot/0"], state["slot/1"]) is alike
        assert bool(state["slot_examples"].any()) is not alike
        if alike:
            assert same(state["slot/0"], state["weights"])
    setting = algorithms.Setting(num_clients=6, num_units=3, units_per_round=2, num_parameters=3)
    state_0 = initial_state(algorithms.fedseqinter(), torch.arange(3.0), setting)
    assert torch.equal(state_0["slot/0"], torch.arange(3.0))
    assert torch.equal(state_0["slot/1"], torch.arange(3.0))


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_composition_is_named_as_it_is_built(name):
    assert algorithms.build(resolve({"algorithm": name})).name == name


@pytest.mark.parametrize("server", SERVER_RULES)
@pytest.mark.parametrize("topology", ["", "fedseq", "fedseqinter"])
def test_feddyn_takes_no_other_server_rule(topology, server):
    with pytest.raises(FedSeqError, match="feddyn has a server rule of its own"):
        parse_algorithm(compose(topology, "feddyn", server))


@pytest.mark.parametrize(
    "name",
    [
        "fedprox+fedseq",
        "fedavgm+fedprox",
        "fedavgm+fedseqinter",
        "fedseq+fedavgm+scaffold",
        "ema+fedavgm",
        "window+fedseq",
    ],
)
def test_parts_in_another_order_are_refused(name):
    with pytest.raises(FedSeqError, match="is not in the form"):
        parse_algorithm(name)


@pytest.mark.parametrize(
    "name", ["fedseq+fedseqinter", "fedprox+scaffold", "fedavgm+fedadam", "fedseq+fedseq", "ema+window"]
)
def test_two_parts_of_a_kind_are_refused(name):
    with pytest.raises(FedSeqError, match="is not in the form"):
        parse_algorithm(name)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("fedprox", "mu", 0.01), ("fedseq+fedprox", "mu", 0.01), ("fedseqinter+fedprox", "mu", 1.0),
        ("feddyn", "alpha_dyn", 0.1), ("fedseq+feddyn", "alpha_dyn", 0.1), ("fedseqinter+feddyn", "alpha_dyn", 1.0),
        ("scaffold", "scaffold_option", 1), ("fedseqinter", "merge_every", None),
    ],
)  # fmt: skip
def test_the_papers_defaults(name, option, value):
    assert resolve({"algorithm": name}).options().get(option) == value


def test_the_papers_defaults_may_be_overridden():
    assert dict(resolve({"algorithm": "fedseqinter+fedprox", "mu": 0.2}).rules)["mu"] == 0.2


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_feddyn_refuses_an_alpha_that_the_server_can_not_divide_by(alpha):
    with pytest.raises(FedSeqError, match="alpha_dyn must be greater than 0"):
        algorithms.feddyn(alpha)


def test_scaffold_option_2_refuses_momentum_in_the_config_and_in_python(tmp_path):
    with pytest.raises(FedSeqError, match="plain SGD"):
        resolve({"algorithm": "scaffold", "scaffold_option": 2, "momentum": 0.5})
    with pytest.raises(FedSeqError, match="plain SGD"):
        train(tmp_path, algorithms.scaffold(2), momentum=0.5)
    with pytest.raises(FedSeqError, match="options 1 and 2"):
        algorithms.scaffold(3)
