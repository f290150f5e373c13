"""In contact with a Ray cluster: the user's, one at an address, or a small one of our own on this machine.

Whoever may speak to a Ray cluster runs code as its owner. So our own listens on the loopback interface only, answers
nobody without a token that is drawn for it, and keeps its files in a folder that is closed to other users.
"""

import contextlib
import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import ray
from ray._private import ray_constants, services
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # compiled
from ray.exceptions import AuthenticationError
from ray.job_config import JobConfig

from fedseq.basics.errors import FedSeqError
from fedseq.basics.processes import usable_cores

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ON_LOOPBACK = {ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0"}  # Ray's setting to keep a machine off the network
CONNECTION_SECONDS = 5.0  # seconds to reach an address; Ray itself would try for more than a minute
NO_STATISTICS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # without the 2nd Ray warns


class _PathsOfOurs(JobConfig):
    """Keeps Ray from putting our current folder, which may be anybody's, in front of its workers' path.

    Ray does so unless a working folder is sent along. ray.py tells the workers where modules are.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        return True


@contextlib.contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[None]:
    """Without an address, on a cluster of this machine that ends with the context."""
    if ray.is_initialized():  # by the caller, who will also shut it down
        yield
        return
    with _own_cluster(workers) if address is None else _cluster_at(address):
        yield


@contextlib.contextmanager
def _own_cluster(workers: int | None) -> Iterator[None]:
    closed = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with (
        # Of mode 0700, while Ray opens the folder that it makes to everybody.
        tempfile.TemporaryDirectory(prefix="fedseq-ray-", ignore_cleanup_errors=True) as folder,
        _settings({**closed, **ON_LOOPBACK}),
        _session(
            "cannot start Ray on this machine",
            address="local",
            num_cpus=workers or usable_cores(),
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=f"{folder}/ray",
        ),
    ):
        yield


@contextlib.contextmanager
def _settings(wanted: dict[str, str]) -> Iterator[None]:
    """For the processes that Ray starts, and for this one, where Ray read its settings when it was imported."""
    try:
        with _environment(wanted):
            _read_environment()
            yield
    finally:
        _read_environment()


def _read_environment() -> None:
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
    name = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    ray_constants.ENABLE_RAY_CLUSTER = ray_constants.env_bool(name, not ray_constants.IS_WINDOWS_OR_OSX)


@contextlib.contextmanager
def _cluster_at(address: str) -> Iterator[None]:
    if "://" in address:
        raise FedSeqError(
            f"--ray-address {address} is for Ray's client. Give the cluster's HOST:PORT, on a machine of it."
        )
    try:
        found = str(services.get_ray_address_from_environment("auto", None)) if address == "auto" else address
    except ConnectionError:
        raise FedSeqError("--ray-address auto finds no Ray cluster here. Start one with `ray start --head`.") from None
    host, _, port = found.rpartition(":")
    if not port.isdigit():
        raise FedSeqError(f"--ray-address {address} is not in the form HOST:PORT, and not auto.")
    host, problem = host.strip("[]"), f"cannot connect to the Ray cluster at {found}"
    if not _answers(host, int(port)):
        raise FedSeqError(
            f"{problem}: nobody answers there. Start one with `ray start --head`, or leave the address out."
        )
    # Ray takes a loopback address for this machine's outward one, where a cluster of one machine need not listen.
    confined = host in LOOPBACK and not _answers(services.get_node_ip_address(), int(port))
    with _settings(ON_LOOPBACK if confined else {}), _session(problem, address=found):
        yield


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), CONNECTION_SECONDS).close()
    except (OSError, OverflowError):
        return False
    return True


@contextlib.contextmanager
def _session(problem: str, **options: Any) -> Iterator[None]:
    """From ray.init to ray.shutdown, which also ends what a Ctrl-C leaves half started."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        try:
            with _environment(NO_STATISTICS):
                ray.init(job_config=_PathsOfOurs(), log_to_driver=False, logging_level=logging.ERROR, **options)
        except (OSError, RuntimeError, ValueError, AssertionError) as error:  # ConnectionError is an OSError
            raise FedSeqError(f"{problem}: {error}") from None
        except AuthenticationError:
            raise FedSeqError(
                f"{problem}: it wants a token. Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the cluster's."
            ) from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray would end the process, and a run is to be saved first
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
