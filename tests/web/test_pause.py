"""Pausing a subscription through the API and the dashboard: what is shown, and what is recorded."""

from __future__ import annotations

from web.browse import Browser, text
from web.house import House, live


def test_a_paused_subscription_is_shown_and_its_deliveries_say_why_they_wait() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        one = f"/v1/subscriptions/{made['id']}"
        assert made["paused_since"] is None
        got = await house.client.post(f"{one}/pause")
        assert got.status == 200
        since = got.json["paused_since"]
        assert since is not None
        assert (await house.client.post(f"{one}/pause")).json["paused_since"] == since
        assert (await house.client.get(one)).json["paused_since"] == since
        await house.publish()
        (row,) = await house.deliveries()
        shown = (await house.client.get(f"/v1/deliveries/{row['id']}")).json
        assert shown["status"] == "pending"
        assert "its subscription has been paused since" in shown["explanation"]
        assert (await house.client.post(f"{one}/resume")).json["paused_since"] is None
        entries = (await house.client.get("/v1/audit")).json["items"]
        assert [it["action"] for it in entries[:2]] == [
            "subscriptions.resume",
            "subscriptions.pause",
        ]
        assert entries[1]["after"] == {"paused_since": since}

    live(story)


def test_the_dashboard_pauses_and_resumes() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        browser = Browser(house.app)
        await browser.sign_in()
        page = f"/subscriptions/{made['id']}"
        assert "Pause…" in text(await browser.get(page))
        await browser.form(page, f"{page}/pause")
        shown = text(await browser.get(page))
        assert "This subscription has been paused since" in shown
        assert "Resume…" in shown
        assert "paused" in text(await browser.get("/subscriptions"))
        await browser.form(page, f"{page}/resume")
        assert "paused since" not in text(await browser.get(page))

    live(story)


def test_a_subscription_that_is_read_is_not_paused_and_the_answer_says_why() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(url="")
        got = await house.client.post(f"/v1/subscriptions/{made['id']}/pause")
        assert (got.status, got.problem.code) == (409, "conflict")
        assert "its readers read them" in got.problem.detail

    live(story)
