"""Receivers in every kind of trouble, each by its own diary of good and bad hours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Protocol

import msgspec

from homing.model import Failure
from homing.sim.world import Hit, Reply
from simulation.health_model import HOUR, MINUTE
from simulation.mix import BULK_LATENCY_MS, BULK_URL, HUSH_URL, Egress, Mix

TOLERANCE_MS = 300_000  # between a signature's time and the receiver's own
SENDER_ERROR_MAX_MS = 600_000  # Beyond that it is not the sender alone.
_FAILURES = {failure.value: failure for failure in Failure}


@dataclass(frozen=True)
class Spell:
    """A time with one kind of trouble."""

    until: int
    trouble: str | None
    part: float  # of the requests that meet it


def cut_off(kind: str, hit: Hit, rng: Random) -> Reply:
    """What comes of a request while we are cut off."""
    dialled = rng.random() < 0.5
    match kind:
        case "silence":  # Kept connections hang, new ones are never made.
            failure = Failure.CONNECT_TIMEOUT if dialled else Failure.TIMEOUT
            return Reply(None, failure, latency_ms=min(hit.deadline_ms, 2_000), dialled=dialled)
        case "broken":
            failure = Failure.UNREACHABLE if dialled else Failure.RESET
            return Reply(None, failure, latency_ms=rng.choice((0, 3)), dialled=dialled)
        case _:
            latency_ms = rng.choice((0, 3, 40))
            return Reply(None, Failure(kind), latency_ms=latency_ms, dialled=True)


class EgressFaults:
    """The proxy of the sender is away at times, and client certificates expire.

    Both last for longer than the ten minutes after which other failures of the sender count for
    the host.
    """

    def __init__(self, mix: Mix, egress: Egress, *, fire: Callable[[str], None]) -> None:
        self._mix, self._egress, self._fire = mix, egress, fire
        rng = Random(f"proxy {mix.seed}")
        self._away = [self._spell(rng) for _ in range(egress.proxy_outages)]
        self._urls: dict[str, tuple[bool, tuple[float, float] | None]] = {}

    def reply(self, hit: Hit) -> Reply | None:
        """The failure of the sender itself; None: the request reaches its receiver."""
        now = asyncio.get_running_loop().time() * 1000
        direct, expired = self._of(hit.url)
        if expired is not None and expired[0] <= now < expired[1]:
            self._fire("certificate_expired")
            return Reply(None, Failure.SENDER_CERTIFICATE)
        if not direct and any(begin <= now < end for begin, end in self._away):
            self._fire("proxy_away")
            return Reply(None, Failure.SENDER_PROXY, latency_ms=3, dialled=True)
        return None

    def _of(self, url: str) -> tuple[bool, tuple[float, float] | None]:
        """Whether a URL needs no proxy, and when its certificate has expired."""
        if url not in self._urls:
            rng = Random(f"egress {self._mix.seed} {url}")
            direct = rng.random() < self._egress.direct
            has = rng.random() < self._egress.certificates
            self._urls[url] = direct, self._spell(rng) if has else None
        return self._urls[url]

    def _spell(self, rng: Random) -> tuple[float, float]:
        begin = rng.uniform(0.05, 0.7) * self._mix.run_for_ms
        return begin, begin + rng.choice((40, 60, 90)) * MINUTE


class Asked(Protocol):
    """Who is told what a receiver asked for by Retry-After."""

    def __call__(self, hit: Hit, at: int, *, by_wall: bool = False) -> None: ...


class Receivers:
    """Responds to every request; ``heal`` ends all trouble."""

    def __init__(
        self,
        mix: Mix,
        rng: Random,
        *,
        fire: Callable[[str], None],
        asked: Asked,
    ) -> None:
        self._mix, self._rng = mix, rng
        self._fire, self._asked = fire, asked
        self._diaries: dict[str, list[Spell]] = {}
        self._dials = Random(f"dials {mix.seed}")
        self._egress = None if mix.egress is None else EgressFaults(mix, mix.egress, fire=fire)
        self._words = Random(f"words {mix.seed}")
        self.proved: Callable[[str], None] = lambda _url: None  # its receiver returns a challenge
        self.says_gone: Callable[[Hit], None] = lambda _hit: None  # its response will be a 410
        self.healed = False
        self.calm = False  # all is well for a while
        self.cut: str | None = None  # so we are cut off
        self.dead: frozenset[str] = frozenset()  # tenants whose hosts have all died
        self.dead_kind = ""
        self.tenant_of: Callable[[Hit], str]
        self.on_bulk: Callable[[Hit], None]

    def reply(self, hit: Hit) -> Reply:
        if abs(int(hit.headers["webhook-timestamp"]) * 1000 - hit.wall) > TOLERANCE_MS:
            self._fire("receiver_refused_stale")
            return Reply(code=401)
        is_challenge = hit.headers["homing-event-type"] == "homing.challenge"
        return self._challenged(hit) if is_challenge else self._received(hit)

    def _received(self, hit: Hit) -> Reply:
        if self._mix.hangs and not self.healed:
            if hit.url.startswith(HUSH_URL):
                return Reply(latency_ms=10 * HOUR)
            if self.calm:
                return Reply(latency_ms=self._dials.choice((0, 3)))
        ours = None if self._egress is None or self.healed else self._egress.reply(hit)
        if ours is not None:
            return ours
        if self._mix.bulk_edits and hit.url == BULK_URL:
            self.on_bulk(hit)
            return Reply(latency_ms=10 if self.healed else BULK_LATENCY_MS)
        if not self._mix.cuts:
            return self._reply(hit)
        if self.cut is not None and not self.healed:
            return cut_off(self.cut, hit, self._dials)
        if self.dead and not self.healed and self.tenant_of(hit) in self.dead:
            return cut_off(self.dead_kind, hit, self._dials)
        reply = Reply(latency_ms=self._dials.choice((0, 3))) if self.calm else self._reply(hit)
        return msgspec.structs.replace(reply, dialled=self._dials.random() < 0.5)

    def _reply(self, hit: Hit) -> Reply:
        if self.healed:
            return Reply(latency_ms=10)
        trouble = self._trouble(hit.url, round(asyncio.get_running_loop().time() * 1000))
        if trouble == "poisoned":
            trouble = "500" if hit.body and hit.body[-3] % 4 == 0 else None
            if trouble:
                self._fire("receiver_poisoned")
        if trouble is None:
            return Reply(code=self._rng.choice((200, 202, 204)), latency_ms=self._latency())
        if self._mix.gone and self._words.random() < self._mix.gone:
            self._fire("receiver_410")
            self.says_gone(hit)
            return Reply(code=410, latency_ms=self._words.choice((3, 900, 900)))
        self._fire(f"receiver_{trouble}")
        return self._bad(hit, trouble)

    def _challenged(self, hit: Hit) -> Reply:
        """Most return the challenge, some anything else, and some are in trouble."""
        self._fire("challenge")
        kind = self._words.choice(("echo", "echo", "ok", "body", "500"))
        match kind:
            case "echo":
                self.proved(hit.url)
                body = msgspec.json.decode(hit.body)["challenge"].encode()
                return Reply(latency_ms=3, excerpt=body)
            case "ok":
                return Reply(latency_ms=3, excerpt=b"ok")
            case "body":
                return Reply(latency_ms=3, excerpt=hit.body)
            case _:
                return Reply(code=500)

    def _latency(self) -> int:
        return self._rng.choice(self._mix.latencies_ms)

    def _trouble(self, url: str, now: int) -> str | None:
        diary = self._diaries.setdefault(url, [])
        while not diary or diary[-1].until <= now:
            diary.append(self._spell(diary[-1].until if diary else 0))
        spell = next(it for it in diary if it.until > now)
        if spell.trouble is None or self._rng.random() >= spell.part:
            return None
        return spell.trouble

    def _spell(self, begin: int) -> Spell:
        mix, rng = self._mix, self._rng
        length = int(rng.choice((0.02, 0.1, 0.3, 0.6)) * mix.run_for_ms)
        bad = rng.random() < mix.bad
        trouble = rng.choice(mix.troubles) if bad else None
        if trouble is not None and trouble.startswith("sender_"):
            length = min(length, SENDER_ERROR_MAX_MS)
        return Spell(begin + max(length, 1_000), trouble, rng.choice((0.3, 0.8, 1.0, 1.0)))

    def _bad(self, hit: Hit, trouble: str) -> Reply:
        latency = self._latency()
        match trouble:
            case "500" | "503" | "404" | "302":
                return Reply(code=int(trouble), latency_ms=latency)
            case "429_retry_after" | "503_retry_after" | "500_retry_after":
                seconds = self._rng.choice((1, 30, 600, 7_000))
                self._asked(hit, hit.at + latency + seconds * 1000)
                code = int(trouble[:3])
                return Reply(code=code, latency_ms=latency, retry_after=str(seconds))
            case "retry_after_date":
                at = (hit.wall // 1000 + self._rng.choice((-5, 20, 500))) * 1000
                self._asked(hit, at, by_wall=True)
                date = datetime.fromtimestamp(at // 1000, UTC)
                return Reply(
                    code=503, latency_ms=latency, retry_after=f"{date:%a, %d %b %Y %H:%M:%S GMT}"
                )
            case "retry_after_absurd":
                self._asked(hit, hit.at + 1000 * HOUR)
                return Reply(code=429, latency_ms=latency, retry_after="99999999999999999999")
            case "hang":
                return Reply(latency_ms=10 * HOUR)
            case "drip":
                return Reply(latency_ms=hit.deadline_ms + self._rng.choice((-1, 0, 1)))
            case "reset_after_work":
                return Reply(code=None, failure=Failure.RESET, latency_ms=latency)
            case _:
                return Reply(code=None, failure=_FAILURES[trouble], latency_ms=latency)
