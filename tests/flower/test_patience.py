"""Slow machines, on Flower's own states: in memory, as a node has it, and SQL, as a SuperLink."""

import asyncio
import datetime
import sqlite3
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from flwr.common.constant import NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore import sql_mixin
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.corestate import in_memory_corestate, sql_corestate
from flwr.supercore.error import http_error_translator
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.retry.http_retry import _RETRYABLE_STATUS_CODES
from flwr.superlink.federation import NoOpFederationManager

from fedseq.flower import app_run, superlink
from fedseq.flower.federation_folder import Federation


@pytest.mark.parametrize(
    ("database", "module"),
    [(FLWR_IN_MEMORY_DB_NAME, in_memory_corestate), ("state.db", sql_corestate)],
    ids=["in memory", "SQL"],
)
def test_an_app_may_take_minutes_to_start_and_is_missed_after_one(
    database: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for state in (in_memory_corestate, sql_corestate):  # what the function changes is put back after the test
        monkeypatch.setattr(state, "HEARTBEAT_DEFAULT_INTERVAL", 30)
        monkeypatch.setattr(state, "HEARTBEAT_PATIENCE", 2)
    superlink.let_apps_start_slowly()
    began = module.now()
    later = [0.0]
    monkeypatch.setattr(module, "now", lambda: began + datetime.timedelta(seconds=later[0]))
    states: Any = LinkStateFactory(database, NoOpFederationManager(), ObjectStoreFactory()).state()
    run = states.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, "serverapp")
    task = states.create_task(TaskType.SERVER_APP, run)
    token = states.claim_task(task)
    later[0] = 290
    assert states.get_task_by_token(token) is not None  # Flower itself gives it up after 30 seconds
    assert states.activate_task(task)
    later[0] += 59
    assert states.get_task_by_token(token) is not None
    later[0] += 2
    assert states.get_task_by_token(token) is None


def test_a_request_that_finds_the_database_locked_is_to_be_sent_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", (("busy_timeout", "0"), ("journal_mode", "WAL")))
    states: Any = LinkStateFactory(str(tmp_path / "state.db"), NoOpFederationManager(), ObjectStoreFactory()).state()
    request = SimpleNamespace(url=SimpleNamespace(path="/v1/fleet/register-node"))

    async def register(_: Any) -> Any:
        states.create_node("", "", b"key", 30)
        return SimpleNamespace(status_code=200)

    async def fail(_: Any) -> Any:
        raise RuntimeError("a mistake")

    def status(translate: Any, work: Any = register) -> int:
        return asyncio.run(translate(request, work)).status_code

    ours = superlink.ask_again_when_busy(http_error_translator)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert status(http_error_translator) == 500  # what ended a run: nobody sends that again
    assert status(ours) in _RETRYABLE_STATUS_CODES
    other.execute("ROLLBACK")
    assert status(ours) == 200
    assert status(ours, fail) == 500


BREAKS_OFF = """#!/bin/sh
echo "$1" >> asked
case $1 in
    run) echo "Successfully started run 7"; echo "round 1" ;;
    log) echo "round 1"; echo "round 2" ;;
    ls) [ "$(grep -c ls asked)" = 1 ] && status=running || status=finished:completed
        echo "{\\"runs\\": [{\\"run-id\\": \\"7\\", \\"status\\": \\"$status\\", \\"status-details\\": \\"\\"}]}" ;;
esac
"""


def test_a_run_whose_log_breaks_off_is_followed_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flwr").write_text(BREAKS_OFF)
    (tmp_path / "flwr").chmod(0o755)
    monkeypatch.setattr(app_run, "_environment", lambda home: {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    shown: list[str] = []
    app_run._follow(Federation(tmp_path, 2), tmp_path, {}, shown.append)
    assert (tmp_path / "asked").read_text().split() == ["run", "ls", "log", "ls"]
    assert [line for line in shown if line.startswith("round")] == ["round 1", "round 1", "round 2"]
