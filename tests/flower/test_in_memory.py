"""A whole federation in one process: our ServerApp's engine and our ClientApp, on Flower's grid in memory."""

from pathlib import Path

from fedseq import algorithms
from fedseq.flower.client_app import make_client_app
from fedseq.flower.federation_folder import Federation
from fedseq.flower.run_options import read_run_config
from fedseq.flower.server_app import serve

from .expected import OPTIONS, checksum, lines, on_one_machine
from .grids import app_grid


def test_chains_over_flowers_messages_end_with_the_weights_of_a_simulation(tmp_path: Path) -> None:
    """Two rounds, so that FedDyn's memory has travelled; two superclients of two clients, grouped by pre-training."""
    chosen = {**OPTIONS, "num_clients": 4, "rounds": 2}
    grid = app_grid(make_client_app(), 4, chosen, tmp_path / "memory")
    serve(grid, Federation(tmp_path, 4), *read_run_config({**chosen, "out": "federation"}), algorithms.build)
    expected = on_one_machine(tmp_path / "simulation")
    assert checksum(tmp_path / "federation") == checksum(expected)
    assert lines(tmp_path / "federation") == lines(expected)
    assert [record["client_updates"] for record in lines(expected)] == [4, 4]
