"""How long Flower waits: for an app that it has started, and for its database.

It gives an app 30 seconds to report, then takes its work away and starts another. On a busy machine importing PyTorch
takes longer: every app would be replaced before it began, and a run would never start.

Its database takes one writer at a time. A request that did not get its turn within five seconds is answered with 500,
which nobody tries again: a run would end for a disk that was slow once. 503 says the same and is tried again.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from flwr.supercore.corestate import in_memory_corestate, sql_corestate

START_SECONDS = 300
MISSED_SECONDS = 60  # without a word, after which an app that has reported is taken to be dead: as Flower has it
TRY_AGAIN = 503

Translator = Callable[[Any, Callable[[Any], Awaitable[Any]]], Coroutine[Any, Any, Any]]


def let_apps_start_slowly() -> None:
    """Flower multiplies the two to know when an app is dead, and uses the first alone for its start."""
    modules: tuple[Any, ...] = (in_memory_corestate, sql_corestate)
    for state in modules:
        state.HEARTBEAT_DEFAULT_INTERVAL = START_SECONDS
        state.HEARTBEAT_PATIENCE = MISSED_SECONDS / START_SECONDS


def ask_again_when_busy(translate: Translator) -> Translator:
    """Flower's translation of errors into answers, but for a database that others are writing into: nothing was
    changed by the request then, and whoever sent it may send it again."""
    from sqlalchemy.exc import OperationalError
    from starlette.responses import JSONResponse

    async def translated(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        async def answered(request: Any) -> Any:
            try:
                return await call_next(request)
            except OperationalError as error:
                if "locked" not in str(error.orig):
                    raise
                return JSONResponse({"detail": "The database is busy."}, TRY_AGAIN)

        return await translate(request, answered)

    return translated
