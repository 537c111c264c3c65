"""Refusals as sentences: they stay so on their way to a page, and are plain text elsewhere."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from homing.errors import Conflict, FieldProblem, HomingError, Invalid
from homing.languages.sentences import Sentence, say
from homing.model import SPEC, ReceiverState, TlsIdentity
from homing.policy.admission import SubscriptionDraft, check_subscription
from homing.policy.certificates import make_identity, why_unusable
from homing.policy.verification import Proof, judge_echo, with_proof
from homing.store import rows
from homing.web.problems import MethodNotAllowed, problem_response
from policy.build import a_subscription

NOW = 1_800_000_000_000


class Loud:
    """A language that writes every message in capitals."""

    def message(self, one: str, other: str, count: int) -> str:
        return (
            other.upper() if other and count != 1 else one.upper().replace("{REASON}", "{reason}")
        )

    def number(self, value: float, digits: int = 0) -> str:
        return f"{value:.{digits}f}"


def loud(text: str) -> str:
    assert isinstance(text, Sentence)
    return text.text(str, Loud())


def refused(**given: object) -> Invalid:
    draft = SubscriptionDraft(tenant="acme", types=("order.paid",), **given)  # type: ignore[arg-type]
    with pytest.raises(Invalid) as caught:
        check_subscription(draft, policies=("workfront",), refuses=None, now=NOW)
    return caught.value


WRONG = {
    "url": "ftp://x.example",
    "policy": "never",
    "rate_per_second": 0.001,
    "quiet_ms": 5,
    "basic_user": "ada",
    "oauth_scope": "two  spaces",
    "headers": (("host", "x"), ("x-a", "é")),
    "client_key": "no key",
    "filters": '[{"field": "amount", "op": "near"}]',
    "metadata": (("", "x"),),
    "description": "a\0b",
}


def test_every_reason_of_a_refused_subscription_can_be_said_in_every_language() -> None:
    problems = refused(**WRONG).problems
    assert len(problems) > len(WRONG)
    for it in problems:
        assert isinstance(it.reason, Sentence), it


def test_an_error_from_another_process_still_has_its_sentences() -> None:
    error = Conflict(say("The tenant {tenant} has it.", tenant="acme"))
    for one in (error, refused(**WRONG)):
        again: HomingError = pickle.loads(pickle.dumps(one))
        assert (str(again), again.detail, again.problems) == (str(one), one.detail, one.problems)
        assert {type(it.reason) for it in again.problems} <= {Sentence}
        assert type(again.detail) is type(one.detail)
    assert loud(pickle.loads(pickle.dumps(error)).detail) != str(error.detail)


def test_a_problem_document_has_the_english_text() -> None:
    errors = (refused(**WRONG), Conflict(say("It is {state}.", state="frozen")))
    for error in (*errors, MethodNotAllowed(("GET", "POST"))):
        document = msgspec.json.decode(problem_response(error).body)
        reasons = [(it["field"], it["reason"]) for it in document["problems"]]
        assert reasons == [(it.field, str(it.reason)) for it in error.problems]
        assert document["detail"] == str(error.detail) or reasons
    assert type(str(MethodNotAllowed(("PUT",)).detail)) is str


def test_the_reason_of_a_missing_proof_is_stored_and_can_still_be_said_in_every_language() -> None:
    proof = judge_echo("abc", code=404, failure=None, detail="", body=b"")
    one = with_proof(a_subscription(), proof, now=NOW)
    stored = rows.subscription(rows.subscription_row(one)).receiver
    assert stored == one.receiver
    assert stored is not None
    assert type(stored.problem) is str
    assert stored.problem == stored.why == "The challenge failed: 404 Not Found"
    assert loud(stored.why) == "THE CHALLENGE FAILED: 404 Not Found"
    again = with_proof(one, Proof(), now=NOW).receiver
    assert again is not None
    assert (again.problem, again.why, again.said) == ("", "", {})


def test_a_problem_that_an_older_release_stored_stays_as_it_is() -> None:
    assert ReceiverState(problem="It failed.").why == "It failed."


def test_the_reason_of_an_unusable_certificate_is_plain_in_the_log_of_attempts() -> None:
    identity = make_identity(certificate="no PEM", key="neither")
    assert isinstance(identity, TlsIdentity)
    assert isinstance(identity.problem, Sentence)
    assert type(why_unusable(identity, wall=NOW)) is str


def test_the_texts_of_the_fields_can_be_said_in_every_language() -> None:
    for field in SPEC.values():
        texts = (
            field.label,
            field.sentence,
            field.unset or say("none"),
            field.group or say("none"),
        )
        assert all(isinstance(it, Sentence) for it in texts), field.name


def test_a_field_problem_is_equal_to_the_plain_pair() -> None:
    assert FieldProblem("url", say("must be {n}", n=5)) == ("url", "must be 5")
