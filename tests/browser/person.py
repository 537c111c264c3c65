"""A person at the dashboard: signs in, looks, clicks; and what they see goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from homing.testing import HomingServer

# Counts the clicks of a pointer; a key that presses a button is none.
COUNT_CLICKS = """addEventListener("click", (event) => {
  if (!event.isTrusted || !event.detail) return;
  sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1;
}, true)"""
# Cells of a list whose text is wider than the cell.
# The cells that are too narrow, also on another day, when times are shown with their date.
SPILLED = """() => {
    const times = [...document.querySelectorAll('time[data-form="at"]')];
    const shown = times.map(it => it.textContent);
    times.forEach(it => { it.textContent = "30 Sept 2026, 23:59:59" });
    const spilled = [...document.querySelectorAll("table.stack td")]
        .filter(it => it.clientWidth < it.scrollWidth - 1).map(it => it.textContent.trim());
    times.forEach((it, number) => { it.textContent = shown[number] });
    return spilled;
}"""
AXE = Path(__file__).parent / "axe" / "axe.min.js"
GRAVE = {"serious", "critical"}
COLOUR_RULES = ["color-contrast", "link-in-text-block"]


class Person:
    """Drives one tab."""

    def __init__(self, page: Page, server: HomingServer, *, shots: Path | None) -> None:
        self.page, self.server = page, server
        self._shots = shots
        self.complaints: list[str] = []
        self.alerts: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)
        page.on("dialog", self._alerted)
        page.add_init_script(COUNT_CLICKS)

    def _heard(self, message: Any) -> None:
        refused = "Content Security Policy" in message.text
        if refused:
            self.complaints.append(message.text)

    def _alerted(self, dialog: Any) -> None:
        self.alerts.append(dialog.message)
        dialog.dismiss()

    def sign_in(self, key: str | None = None) -> None:
        self.page.goto(f"{self.server.url}/sign-in")
        self.page.get_by_label("API key", exact=True).fill(key or self.server.key)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        self.page.wait_for_load_state()
        self.page.evaluate("sessionStorage.clicks = 0")

    def open(self, path: str) -> None:
        self.page.goto(self.server.url + path)

    def presses(self, *keys: str) -> None:
        """Press one key after the other, once the page's scripts hear them."""
        self.page.wait_for_load_state()
        for key in keys:
            self.page.keyboard.press(key)

    def clicks(self) -> int:
        """How often they have clicked since they signed in."""
        return int(self.page.evaluate("Number(sessionStorage.clicks || 0)"))

    def sees(self, text: str) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible()

    def sees_toast(self, text: str) -> None:
        expect(self.page.locator(".toast").filter(has_text=text)).to_be_visible()

    def confirms(self, button: str, dialog: str, confirm: str) -> None:
        """Click, read the dialog, and agree."""
        self.page.wait_for_load_state()
        self.page.get_by_role("button", name=button, exact=True).first.click()
        box = self.page.get_by_role("dialog", name=dialog)
        expect(box).to_be_visible()
        box.get_by_role("button", name=confirm, exact=True).click()

    def keeps(self, what: str) -> None:
        """The page fits wide and narrow; pictures of it, light and dark, where they are wanted."""
        for width in (1440, 390):
            self.page.set_viewport_size({"width": width, "height": 900})
            self._fits()
            spilled = self.page.evaluate(SPILLED)
            assert not spilled, f"at {width} px cells are too narrow for {spilled}"
            if self._shots is not None:
                self._takes_pictures(self._shots / f"{what}-{width}")
        self.page.set_viewport_size({"width": 1440, "height": 900})

    def _takes_pictures(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            self.page.screenshot(path=f"{path}-{scheme}.png", full_page=True)

    def _fits(self) -> None:
        """Nothing is wider than the window; charts follow its width a moment later."""
        for _ in range(100):  # Asked from here: the page's policy forbids it to ask itself.
            if self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("the page is wider than the window")

    def finds_no_barrier(self) -> None:
        """axe-core finds nothing serious; in the dark only the colours are others."""
        # By the debugger's door: the page's own policy lets no foreign script in.
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            options = {} if scheme == "light" else {"runOnly": COLOUR_RULES}
            found = self.page.evaluate(
                "more => axe.run(document, {resultTypes: ['violations'], ...more})", options
            )
            grave = [
                f"{it['id']}: {it['help']}: {[node['target'] for node in it['nodes']][:4]}"
                for it in found["violations"]
                if it["impact"] in GRAVE
            ]
            assert not grave, (scheme, grave)
