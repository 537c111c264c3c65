"""Lost commits through the API and on the dashboard."""

from __future__ import annotations

from homing.errors import DatabaseBehind
from homing.languages.sentences import Sentence
from homing.model import id_floor
from homing.policy.commit_loss import missing_text
from homing.web.show import time_text
from web.browse import Browser, text
from web.house import House, live


async def _lose(house: House) -> Sentence:
    """As a process of a fleet notices it; returns what is said about it."""
    losses, now = house.world.engine.losses, house.world.clock.now()
    loss = losses.add(DatabaseBehind("publish", seen=id_floor(now), found=None))
    await losses.write()
    return missing_text(loss)


def _on_pages(ms: int) -> str:
    return time_text(ms)[:19].replace("T", " ") + " UTC"


def test_the_status_and_the_metrics_show_a_loss_until_it_is_confirmed() -> None:
    async def story(house: House) -> None:
        missing = await _lose(house)
        (shown,) = (await house.client.get("/v1/status")).json["lost_commits"]
        assert shown["missing"] == missing
        assert shown["kind"] == "publish"
        assert "homing_lost_commits 1.0" in text(await house.client.get("/metrics"))
        listed = (await house.client.get("/v1/lost-commits")).json
        assert (len(listed["items"]), listed["holding"]) == (1, False)

        confirmed = await house.client.post("/v1/lost-commits/confirm")

        assert [it["missing"] for it in confirmed.json["items"]] == [missing]
        assert (await house.client.get("/v1/status")).json["lost_commits"] == []
        assert (await house.client.get("/v1/lost-commits")).json["items"] == []
        assert "homing_lost_commits 0.0" in text(await house.client.get("/metrics"))

    live(story)


def test_the_page_system_says_what_may_be_missing_and_has_the_button() -> None:
    async def story(house: House) -> None:
        missing = await _lose(house)
        browser = Browser(house.app)
        await browser.sign_in()
        page = text(await browser.get("/system"))
        assert "lost commits in a failover" in page
        assert missing.text(_on_pages) in page
        await browser.form("/system", "/system/lost-commits")
        page = text(await browser.get("/system"))
        assert "Lost commits" not in page

    live(story)
