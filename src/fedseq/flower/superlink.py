"""`flower-superlink` with rules more: who gets in, how large an answer may be, how slow a disk or app.

A front door checks requests before their bodies are taken. Flower stores whatever a node sends: here an answer that is
larger than the work asked for is refused while it arrives, and so is one in another node's name. Takes the options of
`flower-superlink`; to be reached from other machines it listens on 0.0.0.0.
"""

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from flwr.supercore.corestate import in_memory_corestate, sql_corestate
from flwr.supercore.error import ApiErrorCode, FlowerError

from fedseq.basics.processes import end_with_holder
from fedseq.flower.front_door import FrontDoor

TIMES_THE_ORDER = 4  # a client returns its model, and of an algorithm's other vectors at most a few
ALWAYS_ALLOWED = 1 << 20
ANSWERS_AT_ONCE = 100_000
START_SECONDS = 300
MISSED_SECONDS = 60  # without a word, after which an app that has reported is taken to be dead: as Flower has it
TRY_AGAIN = 503

Translator = Callable[[Any, Callable[[Any], Awaitable[Any]]], Coroutine[Any, Any, Any]]


class AnswerLimit:
    """Counts what arrives, and drops an answer that outgrows the largest order that was sent."""

    def __init__(self) -> None:
        from flwr.proto.message_pb2 import PushObjectResponse
        from flwr.superlink.servicer.fleet import fleet_handlers
        from flwr.superlink.servicer.runtime import runtime_handlers

        self.lock = threading.Lock()
        self.order: dict[int, tuple[str, int]] = {}  # by run: the order that the server is sending, and its bytes
        self.largest = 0  # of any run: what two of them send alike is sent once
        self.answers: dict[str, tuple[str, float]] = {}  # by push session: the answer, and its bytes
        self.not_stored = PushObjectResponse(stored=False)
        self.push_order, runtime_handlers.push_object = runtime_handlers.push_object, self.order_object
        self.push_answer, fleet_handlers.push_messages = fleet_handlers.push_messages, self.answer
        self.push_object, fleet_handlers.push_object = fleet_handlers.push_object, self.answer_object

    def order_object(self, request: Any, state: Any, task: Any) -> Any:
        with self.lock:
            session, size = self.order.get(task.run_id, ("", 0))
            size = len(request.object_content) + (size if session == request.session_id else 0)
            self.order[task.run_id] = request.session_id, size
            self.largest = max(size, self.largest)
        return self.push_order(request, state, task)

    def answer(self, request: Any, state: Any) -> Any:
        """Flower has compared the node of the request with the key that signed it, and not that of the message."""
        if request.node.node_id != request.messages_list[0].metadata.src_node_id:
            raise FlowerError(ApiErrorCode.FORBIDDEN_ACTION, "This is the answer of another node.")
        response = self.push_answer(request=request, state=state)
        with self.lock:
            self.answers[response.session_id] = request.message_object_trees[0].object_id, 0
            if len(self.answers) > ANSWERS_AT_ONCE:
                del self.answers[next(iter(self.answers))]
        return response

    def answer_object(self, request: Any, state: Any) -> Any:
        with self.lock:
            answer, size = self.answers.get(request.session_id, ("", float("inf")))
            size += len(request.object_content)
            fits = size <= TIMES_THE_ORDER * self.largest + ALWAYS_ALLOWED
            self.answers[request.session_id] = answer, size if fits else float("inf")
        if fits:
            return self.push_object(request=request, state=state)
        if answer:
            state.object_store.delete(answer)  # with what was stored of it so far
        return self.not_stored


def let_apps_start_slowly() -> None:
    """Flower gives an app 30 seconds to report, then takes its work away and starts another.

    On a busy machine importing PyTorch takes longer: every app would be replaced before it began.

    Flower multiplies the two to know when an app is dead, and uses the first alone for its start.
    """
    modules: tuple[Any, ...] = (in_memory_corestate, sql_corestate)
    for state in modules:
        state.HEARTBEAT_DEFAULT_INTERVAL = START_SECONDS
        state.HEARTBEAT_PATIENCE = MISSED_SECONDS / START_SECONDS


def ask_again_when_busy(translate: Translator) -> Translator:
    """Flower's translation of errors into answers, but for a database that others are writing into.

    It takes one writer at a time. A request that did not get its turn within five seconds is answered with 500, which
    nobody tries again: a run would end for a disk that was slow once. It has changed nothing, so that 503 says the same
    and is tried again.
    """
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


def main() -> None:
    from flwr.superlink import extensions
    from flwr.superlink import main as app
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    end_with_holder()
    os.environ.pop("FORWARDED_ALLOW_IPS", None)  # a stranger must not say whose request it is
    others = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(FrontDoor, keys="--enable-supernode-auth" in sys.argv), *others())
    AnswerLimit()
    app.http_error_translator = ask_again_when_busy(app.http_error_translator)  # type: ignore[assignment]
    let_apps_start_slowly()
    outermost: Any = app._get_middleware()[0].cls
    if outermost is not FrontDoor:  # another version of Flower: rather nothing than an open door
        sys.exit("this version of Flower cannot be restricted to its nodes. Use the one of FedSeq's extra flower.")
    flower_superlink()


if __name__ == "__main__":
    main()
