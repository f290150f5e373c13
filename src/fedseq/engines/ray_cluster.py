"""In contact with a Ray cluster: the user's, one at an address, or a small one of our own on this machine.

Ray has no passwords: whoever reaches its ports can run code. So our own cluster listens on the loopback interface only.
"""

import contextlib
import logging
import os
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray._private import ray_constants, services
from ray.job_config import JobConfig

from fedseq.basics.cores import usable_cores
from fedseq.basics.errors import FedSeqError

CONNECTION_SECONDS = 5.0  # seconds to reach an address; Ray itself would try for more than a minute
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default, without which it warns
}


class _PathsOfOurs(JobConfig):
    """Keeps Ray from putting our current folder, which may be anybody's, in front of its workers' path.

    Ray does so unless a working folder is sent along. What is to be found where, ray_worker.py tells the workers.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        return True


@contextlib.contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[None]:
    """Without an address, on a cluster of this machine that ends with the context."""
    if ray.is_initialized():  # by the caller, who will also shut it down
        yield
        return
    with contextlib.ExitStack() as stack:
        if address is None:
            folder = tempfile.TemporaryDirectory(prefix="fedseq-ray-", ignore_cleanup_errors=True)
            _start(stack.enter_context(folder), workers)
        else:
            _connect(address)
        stack.callback(ray.shutdown)
        yield


def _start(folder: str, workers: int | None) -> None:
    options = {"address": "local", "num_cpus": workers or usable_cores(), "_node_ip_address": "127.0.0.1"}
    with _loopback():
        _init("cannot start Ray on this machine", include_dashboard=False, _temp_dir=folder, **options)
    if ray.util.get_node_ip_address() not in _LOOPBACK:
        ray.shutdown()
        raise FedSeqError(
            f"Ray {ray.__version__} does not stay on the loopback interface. Start it yourself on a network you trust "
            "and give its --ray-address."
        )


def _connect(address: str) -> None:
    found = _find(address)
    host, _, port = found.rpartition(":")
    problem = f"cannot connect to the Ray cluster at {found}"
    if not port.isdigit():
        raise FedSeqError(f"--ray-address {address} is not in the form HOST:PORT, and not auto.")
    host = host.strip("[]")
    if not _reachable(host, int(port)):
        raise FedSeqError(
            f"{problem}: nobody answers there. Start one with `ray start --head`, or leave the address out."
        )
    # Ray takes a loopback address for this machine's outward one, where a cluster of one machine need not listen.
    confined = host in _LOOPBACK and not _reachable(services.get_node_ip_address(), int(port))
    with _loopback() if confined else contextlib.nullcontext():
        _init(problem, address=found)


def _find(address: str) -> str:
    """`auto` as the address it stands for."""
    if "://" in address:
        raise FedSeqError(
            f"--ray-address {address} is for Ray's client. Give the cluster's HOST:PORT, on a machine of it."
        )
    if address != "auto":
        return address
    try:
        return str(services.get_ray_address_from_environment("auto", None))
    except ConnectionError:
        raise FedSeqError("--ray-address auto finds no Ray cluster here. Start one with `ray start --head`.") from None


def _reachable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), CONNECTION_SECONDS).close()
    except OSError:
        return False
    return True


def _init(problem: str, **options: Any) -> None:
    with _environment(_ENVIRONMENT), _our_signals(), warnings.catch_warnings():
        try:
            ray.init(job_config=_PathsOfOurs(), log_to_driver=False, logging_level=logging.ERROR, **options)
        except (OSError, RuntimeError, ValueError, AssertionError) as error:  # ConnectionError is an OSError
            ray.shutdown()
            raise FedSeqError(f"{problem}: {error}") from None
        except BaseException:  # also Ctrl-C, which leaves half a cluster
            ray.shutdown()
            raise


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Ray's setting to keep a cluster of one machine off the network, also if Ray has been imported before."""
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with _environment({"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """What processes started meanwhile will find in their environment."""
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


@contextlib.contextmanager
def _our_signals() -> Iterator[None]:
    """Ray would end the process on SIGTERM, and a run is to be saved first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
