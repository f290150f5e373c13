"""An app that needs long to start, on Flower's own states: in memory, as a node has it, and SQL, as a SuperLink."""

import datetime
from types import ModuleType
from typing import Any

import pytest
from flwr.common.constant import NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.corestate import in_memory_corestate, sql_corestate
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from fedseq.flower.deployment import patience


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
    patience.let_apps_start_slowly()
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
