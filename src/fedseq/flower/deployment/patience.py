"""How long Flower waits for an app that it has started.

It gives an app 30 seconds to report, then takes its work away and starts another. On a busy machine importing PyTorch
takes longer: every app would be replaced before it began, and a run would never start.
"""

from typing import Any

from flwr.supercore.corestate import in_memory_corestate, sql_corestate

START_SECONDS = 300
MISSED_SECONDS = 60  # without a word, after which an app that has reported is taken to be dead: as Flower has it


def let_apps_start_slowly() -> None:
    """Flower multiplies the two to know when an app is dead, and uses the first alone for its start."""
    modules: tuple[Any, ...] = (in_memory_corestate, sql_corestate)
    for state in modules:
        state.HEARTBEAT_DEFAULT_INTERVAL = START_SECONDS
        state.HEARTBEAT_PATIENCE = MISSED_SECONDS / START_SECONDS
