"""Lost commits: what a failover of the database has lost, and its confirmation."""

from __future__ import annotations

from homing.app.lost_commits import CommitLoss, LostCommits
from homing.errors import StoreUnavailable
from homing.policy.commit_loss import missing_text
from homing.web.operation import Call, Operation
from homing.web.response import Response, json_response
from homing.web.schemas import CommitLossView, LostCommitsView
from homing.web.show import time_text


def loss_view(loss: CommitLoss) -> CommitLossView:
    return CommitLossView(
        noticed_at=time_text(loss.noticed_at),
        process=loss.process,
        kind=loss.kind,
        lost_from=None if loss.from_at is None else time_text(loss.from_at),
        lost_upto=time_text(loss.upto_at),
        missing=str(missing_text(loss)),
    )


async def show(call: Call) -> Response:
    found = call.app.lost_commits.page(call.caller)
    return json_response(LostCommitsView([loss_view(it) for it in found.losses], found.holding))


async def confirm(call: Call) -> Response:
    confirmed = await call.app.lost_commits.confirm(call.caller)
    return json_response(LostCommitsView([loss_view(it) for it in confirmed], holding=False))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/lost-commits",
        id="getLostCommits",
        use_case=LostCommits.page,
        summary="What a failover of the database has lost and no operator has confirmed.",
        handler=show,
        response=LostCommitsView,
    ),
    Operation(
        method="POST",
        path="/v1/lost-commits/confirm",
        id="confirmLostCommits",
        use_case=LostCommits.confirm,
        summary="Confirm all losses; publishes that were held are accepted again. The response has"
        " what was confirmed.",
        handler=confirm,
        response=LostCommitsView,
        errors=(StoreUnavailable,),
    ),
)
