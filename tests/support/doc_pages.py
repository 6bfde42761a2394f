"""The documents as data: README.md and every page under docs.

Input: Markdown files. Output: per page its inline code, its code blocks with their language, its links and the anchors
of its headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:\A|\n\n)((?: {4}.*\n(?:\n(?= {4}))?)+)")
_INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """Code block; ``language`` is empty for an indented one."""

    language: str
    text: str


@dataclass(frozen=True)
class Page:
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def blocks(self) -> list[Block]:
        fenced = [Block(*found) for found in _FENCE.findall(self.text)]
        return fenced + [Block("", found) for found in _INDENTED.findall(_FENCE.sub("", self.text))]

    @cached_property
    def prose(self) -> str:
        return _INDENTED.sub("\n\n", _FENCE.sub("", self.text))

    @property
    def inline_code(self) -> list[str]:
        return [re.sub(r"\s+", " ", found) for found in _INLINE.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        return [target for target in _LINK.findall(self.prose) if "://" not in target]

    @cached_property
    def anchors(self) -> set[str]:
        """Anchors of the headings, as GitHub makes them."""
        words = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in _HEADING.findall(self.prose))
        return {re.sub(r"\s", "-", heading.strip()) for heading in words}

    def commands(self) -> Iterator[str]:
        """Yield the lines of shell blocks, with continued lines joined.

        In a block with a prompt, only the text after a prompt is a command."""
        for block in self.blocks:
            if block.language in ("", "console", "sh"):
                text = re.sub(r"\\\n\s*", "", block.text)
                lines = [line.strip() for line in text.splitlines() if line.strip()]
                prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
                yield from prompted or lines


PAGES = [Page(ROOT / "README.md"), *(Page(path) for path in sorted((ROOT / "docs").rglob("*.md")))]
