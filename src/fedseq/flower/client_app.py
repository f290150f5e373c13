"""A client of a real federation: it says who it is, and trains when it is asked. Its data never leaves it.

Every message may start a new process, so little is imported here and nothing is done twice in one that lives on.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedseq import algorithms
from fedseq.algorithms.base import FEDAVG, Algorithm
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset, load_labelled
from fedseq.data.partition import partition_clients
from fedseq.flower.client_memory import Memories, charge_visits, rounds_back
from fedseq.flower.messages import Answer, DataFacts, Order, pack_answer, unpack_facts, unpack_order
from fedseq.flower.run_options import Settings, read_run_config
from fedseq.models import default_model, model_factory
from fedseq.models.kernels import choose
from fedseq.options.config import Config
from fedseq.policies.privacy import PrivateVisits, mechanism_of
from fedseq.training.chains import run_job
from fedseq.training.examples import Examples
from fedseq.training.jobs import Job, Task, build_first, make_task
from fedseq.training.sgd import lay_out, one_thread
from fedseq.training.weights import FlatModel


def make_client_app(algorithm: Callable[[Config], Algorithm] = algorithms.build) -> ClientApp:
    """The app that every SuperNode runs; give the same algorithm to the server's."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        client = number_of(context)
        task, _ = _workplace(context, client, unpack_facts(message.content.config_records["data"]))
        answer = ConfigRecord({"client": client, "examples": len(task.clients[client])})
        return Message(RecordDict({"client": answer}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        order = unpack_order(message.content)
        if order.client != number_of(context):
            raise FedSeqError(f"this is client {number_of(context)}, and the order is for client {order.client}.")
        config, settings = read_run_config(context.run_config)
        memories = _memories(order, config, settings, context)
        charge_visits(config, _folder(settings, context), order.client, len(order.visits))
        rule = FEDAVG if order.plain else algorithm(config)
        answer = carry_out(order, *_workplace(context, order.client, order.facts), rule, memories)
        return Message(pack_answer(answer), reply_to=message)

    return app


def number_of(context: Context) -> int:
    try:
        return int(context.node_config["partition-id"])
    except (KeyError, ValueError):
        raise FedSeqError("this node has no number: start it with --node-config 'partition-id=K'.") from None


def carry_out(order: Order, task: Task, model: FlatModel, algorithm: Algorithm, memories: Memories) -> Answer:
    """Train as ordered. The memory is written before the answer is sent, so that no answer counts without it."""
    client = order.client
    job = Job(
        index=0,
        unit=client,
        round=order.round,
        hops=tuple((client, visit) for visit in order.visits),
        start=order.start.to(task.device),
        algorithm=algorithm,
        lr=order.lr,
        epochs=order.epochs,
        message={name: tensor.to(task.device) for name, tensor in order.message.items()},
        memory={client: {name: tensor.to(task.device) for name, tensor in memories.load(order.memory).items()}},
        purpose=order.purpose,
    )
    with one_thread():
        result = run_job(task, model, job)
    kept = result.memory.get(client, {})
    if kept:
        memories.save((order.round, order.visits[-1]), {name: tensor.cpu() for name, tensor in kept.items()})
    return Answer(result.end, result.uploads, len(task.clients[client]), result.loss_sum, bool(kept))


def _memories(order: Order, config: Config, settings: Settings, context: Context) -> Memories:
    back = rounds_back(config.checkpoint_every or 1)
    return Memories(order.run, order.client, context.state, _folder(settings, context), back)


def _folder(settings: Settings, context: Context) -> Path | None:
    """Where this client keeps what has to outlive its node."""
    folder = str(context.node_config.get("memory-dir", "")) or settings.memory_dir
    return Path(folder) if folder else None


def _workplace(context: Context, client: int, facts: DataFacts) -> tuple[Task, FlatModel]:
    config, _ = read_run_config(context.run_config)
    source = str(context.node_config.get("data", ""))
    data_dir = str(context.node_config.get("data-dir", "")) or config.data_dir
    return _cached_workplace(config, client, facts, source, data_dir)


@lru_cache(maxsize=64)
def _cached_workplace(
    config: Config, client: int, facts: DataFacts, source: str, data_dir: str | None
) -> tuple[Task, FlatModel]:
    """The client's examples and a model to train on them."""
    x, y = _own_examples(source, facts) if source else _part_of_named(config, client, data_dir)
    if x.shape[1:] != facts.shape or (x.dtype == np.uint8) != bool(facts.mean):
        theirs = f"{'uint8' if facts.mean else 'float32'} {list(facts.shape)}"
        raise FedSeqError(
            f"client {client} holds examples of {x.dtype} {list(x.shape[1:])}, and the server's are {theirs}."
        )
    factory = model_factory(config.model or default_model(facts.shape), facts.shape, len(facts.class_names))
    examples = Examples(torch.from_numpy(x), torch.from_numpy(y), facts.mean, facts.std)
    nobody = replace(examples, x=examples.x[:0], y=examples.y[:0])
    clients = [np.zeros(0, dtype=np.int64)] * client + [np.arange(len(y))]
    task = make_task(config, factory, examples, clients, nobody, len(facts.class_names))
    task, model = build_first(config, task)
    if task.frozen_digest != facts.frozen:
        raise FedSeqError(
            f"the frozen parameters of client {client}'s model are not the server's. They are not sent: the model must "
            "build them alike everywhere, from the same file (or --init-weights) or from torch's random numbers alone."
        )
    choose(model.module, facts.kernels)
    private = (PrivateVisits(mechanism_of(config)),) if config.private_visits else ()
    task = replace(task, kernels=facts.kernels, policies=private)
    return lay_out(task, model), model


def _own_examples(source: str, facts: DataFacts) -> tuple[np.ndarray, np.ndarray]:
    own = load_labelled(source, facts.class_names)
    return own.x, own.y


def _part_of_named(config: Config, client: int, data_dir: str | None) -> tuple[np.ndarray, np.ndarray]:
    """For trying a federation: the same part of a data set that this client has in a simulation."""
    if config.dataset == "own":
        raise FedSeqError("this node has no data: start it with --node-config 'data=\"npz:FILE\" ...'.")
    dataset = load_dataset(config.dataset, Path(data_dir) if data_dir else None)
    rng = seeds.generator(config.seed, "partition")
    parts = partition_clients(
        dataset.y_train, config.num_clients, config.alpha, rng, config.partition, config.follows_authors("partition")
    )
    if client >= len(parts):
        raise FedSeqError(f"there are {len(parts)} clients, numbered from 0; there is no client {client}.")
    return dataset.x_train[parts[client]], dataset.y_train[parts[client]]


app = make_client_app()  # what a federation's folder names
