"""What only some runs do, a policy each (the hooks are in `training/policy.py`), and which of them a run has."""

from collections.abc import Sequence
from dataclasses import replace

from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config
from fedseq.policies.attackers import attacked
from fedseq.policies.early_stopping import Stopping
from fedseq.policies.failures import Failures
from fedseq.policies.gate import Gate
from fedseq.policies.long_chains import LongChains
from fedseq.policies.privacy import PrivateRounds, PrivateVisits, mechanism_of
from fedseq.training.examples import Examples
from fedseq.training.jobs import Task
from fedseq.training.policy import Plan, Policy, Watcher


def with_policies(
    config: Config, task: Task, exemplars: Examples | None, own: Sequence[Policy] = ()
) -> tuple[Task, tuple[Policy, ...]]:
    """The policies that the options ask for and a user's own, in the order of their calls; workers' in the task."""
    found: list[Policy] = []
    if config.private_visits:
        found.append(PrivateVisits(mechanism_of(config)))
    if config.attack is not None:
        task, attackers = attacked(config, task)
        found.append(attackers)
    if config.superclients_per_chain > 1:
        found.append(
            LongChains(config.superclients_per_chain, config.long_chain_rounds, config.superclient_epochs, config.seed)
        )
    if config.client_dropout or config.deadline is not None:
        found.append(Failures(config, [len(indices) for indices in task.clients]))
    if config.gate or config.private_rounds or config.engine == "flower":
        found.append(_gate(config, exemplars))
    if config.private_rounds:
        found.append(PrivateRounds(mechanism_of(config)))
    if config.target_accuracy is not None or config.patience is not None:
        found.append(Stopping(config))
    found += own
    return replace(task, policies=tuple(policy for policy in found if policy.acts_on_clients)), tuple(found)


def _gate(config: Config, exemplars: Examples | None) -> Gate:
    if not config.gate:
        return Gate()
    if not config.checks_exemplars:
        return Gate(config.update_check_factor)
    if exemplars is None:
        raise FedSeqError(
            "--update-check exemplars needs public exemplars of classes, and this test set gives none. "
            "Use --update-check size."
        )
    return Gate(config.update_check_factor, exemplars.on(config.home))


__all__ = ["Plan", "Policy", "Watcher", "with_policies"]
