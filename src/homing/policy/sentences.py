"""Sentences that contain times as values, so that each page shows them in its own time zone."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct


class At(Struct, frozen=True):
    """A time in a sentence."""

    ms: int


class Sentence(Struct, frozen=True):
    """Text with times between its parts."""

    parts: tuple[str | At, ...]

    def text(self, show: Callable[[int], str]) -> str:
        """The whole sentence, with its times as ``show`` writes them."""
        return "".join(show(it.ms) if isinstance(it, At) else it for it in self.parts)


Part = str | At | Sentence


def say(template: str, *parts: Part) -> Sentence:
    """The template with the parts in place of each ``{}``; no part is read as a template."""
    texts = template.split("{}")
    assert len(texts) == len(parts) + 1, template
    return join((texts[0], *(it for pair in zip(parts, texts[1:], strict=True) for it in pair)))


def join(parts: tuple[Part, ...]) -> Sentence:
    """The parts as one sentence."""
    flat: list[str | At] = []
    for part in parts:
        for it in part.parts if isinstance(part, Sentence) else (part,):
            if isinstance(it, str) and flat and isinstance(flat[-1], str):
                flat[-1] += it
            elif it != "":
                flat.append(it)
    return Sentence(tuple(flat))
