#!/usr/bin/env python3
"""Build the site of the documentation in out/site, with the packages in requirements/docs.txt.

    scripts/docs_site.py            gather the pages, then build the site, with every warning an error
    scripts/docs_site.py --gather   only gather the pages in out/site-pages

README.md becomes the first page. Files outside docs that pages link to are copied; links to folders become plain text.
The configuration is zensical.toml.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "out" / "site-pages"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def gather() -> None:
    """Write the pages, and the files that they link to, into ``PAGES``."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES / "docs")
    shutil.copy(ROOT / "README.md", PAGES / "index.md")
    for page in PAGES.rglob("*.md"):
        written = page.relative_to(PAGES)
        linked = LINK.sub(lambda found, at=written.parent: kept(found, at), page.read_text())
        page.write_text("\n".join(indented(linked.split("\n"))))


def kept(found: re.Match[str], folder: Path) -> str:
    """Return the link as the site needs it, and copy the file to which it leads. ``folder``: folder of the page."""
    target = ROOT / folder / found[3]
    if "://" in found[3] or not target.exists():
        return found[0]
    inside = target.resolve().relative_to(ROOT)
    if inside.parts[0] == "docs":
        return found[0]
    if target.is_dir() or inside.suffix == ".md":
        return found[2]
    copied = PAGES / inside
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target, copied)
    return found[0]


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines with paragraphs and code in lists indented by 4, as Python-Markdown needs them."""
    fence: int | None = None  # indentation of the open code block
    for line in lines:
        spaces = len(line) - len(line.lstrip())
        is_fence = line.lstrip().startswith("```")
        if is_fence and fence is None:
            fence, is_fence = spaces, False
        by = spaces if fence is None else fence
        yield " " * (4 - by) + line if line.strip() and by in (2, 3) else line
        if is_fence:
            fence = None


def main(arguments: list[str]) -> int:
    """Gather the pages and build the site; return the exit status."""
    gather()
    if "--gather" in arguments:
        return 0
    zensical = Path(sys.executable).with_name("zensical")
    return subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
