"""A URL that the settings refuse: an admin learns the rule and the setting, a tenant does not."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from homing.policy.reach import REFUSED
from homing.web.workfront.api import BASE
from web.asgi import KEY, Client
from web.browse import Browser, text
from web.house import House, live

URL = "http://10.1.2.3:8080/hook"
RULE = "10.1.2.3 is a private or special-use address"
SETTING = "allow_networks"


async def a_key(house: House) -> str:
    document = {"name": "shop", "role": "manager", "tenant": "default"}
    got = await house.client.post("/v1/keys", document)
    return str(got.json["key"])


async def by_api(house: House, key: str) -> str:
    client = Client(house.app, key=key)
    got = await client.post("/v1/subscriptions", {"url": URL, "types": ["*"]})
    assert (got.status, got.fields) == (422, ["url"])
    made = await house.subscribe()
    changed = await client.patch(f"/v1/subscriptions/{made['id']}", {"url": URL})
    assert changed.problem.problems == got.problem.problems
    return got.problem.problems[0].reason


async def by_dashboard(house: House, key: str) -> str:
    browser = Browser(house.app)
    await browser.sign_in(key)
    fields = {"url": URL, "types": "*", "tenant": "default"}
    checked = await browser.form("/subscriptions/new", "/subscriptions/check", **fields)
    got = await browser.form("/subscriptions/new", "/subscriptions", **fields)
    assert got.status == 422
    assert REFUSED in text(checked)
    assert (SETTING in text(checked)) is (SETTING in text(got))
    return text(got)


async def by_workfront(house: House, key: str) -> str:
    document = {"objCode": "PROJ", "eventType": "UPDATE", "url": URL, "authToken": "t" * 20}
    got = await Client(house.app, key=key).post(BASE, document)
    assert got.status == 400
    return got.body.decode()


@pytest.mark.parametrize("way", [by_api, by_dashboard, by_workfront])
def test_an_admin_learns_the_rule_and_a_tenant_only_that_it_is_not_allowed(way: object) -> None:
    assert callable(way)

    async def story(house: House) -> None:
        for_admin = await way(house, KEY)
        assert REFUSED in for_admin
        assert RULE in for_admin
        assert SETTING in for_admin
        with capture_logs() as logged:
            for_tenant = await way(house, await a_key(house))
        assert REFUSED in for_tenant
        for word in (RULE, "special-use", "allow_", "10.1.2.3 is"):
            assert word not in for_tenant
        lines = [it for it in logged if it["event"] == "URL refused"]
        assert lines
        for line in lines:
            assert (line["url"], line["tenant"], line["by"]) == (URL, "default", "shop")
            assert RULE in line["why"]

    live(story)
