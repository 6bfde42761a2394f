"""A Dockerfile built without an engine: its stages as folders, made by the instructions that ``deploy/Dockerfile`` has.

Input: the text, the folder of the sources with its ``.dockerignore``, and a Debian for the base image. Output: the root
of a stage, and the environment, user and command of its image. An unknown instruction raises an error."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from tests.support.debian_root import DebianRoot

Instruction = tuple[str, str]


@dataclass(frozen=True)
class Stage:
    base: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Image:
    root: DebianRoot
    environment: Mapping[str, str]
    user: str = ""
    command: tuple[str, ...] = ()
    cwd: str = "/"


def stages(text: str) -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    name = ""
    for word, rest in _instructions(text):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = Stage(base, ())
        else:
            found[name] = replace(found[name], instructions=(*found[name].instructions, (word, rest)))
    return found


def _instructions(text: str) -> Iterator[Instruction]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if line:
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


@dataclass(frozen=True)
class Sources:
    """Files of a folder that a build would send to the engine."""

    folder: Path

    def files(self) -> list[PurePosixPath]:
        patterns = (self.folder / ".dockerignore").read_text().split()
        tops = {pattern[1:].split("/")[0] for pattern in patterns if pattern.startswith("!")}
        every = [
            PurePosixPath(path.relative_to(self.folder))
            for top in sorted(tops)
            for path in [self.folder / top, *(self.folder / top).rglob("*")]
            if path.is_file()
        ]
        return [path for path in every if not _ignored(path, patterns)]

    def copy(self, source: str, to: Path) -> None:
        """Copy a file to a file or into a folder, or the content of a folder into a folder."""
        wanted = PurePosixPath(source)
        files = [path for path in self.files() if path == wanted or wanted in path.parents]
        assert files, f"nothing of {source} is sent"
        for path in files:
            target = to / path.relative_to(wanted) if path != wanted else to / path.name if to.is_dir() else to
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.folder / path, target)


def _ignored(path: PurePosixPath, patterns: list[str]) -> bool:
    """Return whether a file is excluded; the last pattern that matches the file or a folder above it decides."""
    ignored = False
    for pattern in patterns:
        regex = re.escape(pattern.lstrip("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(regex, str(part)) for part in (path, *path.parents)):
            ignored = not pattern.startswith("!")
    return ignored


@dataclass
class Build:
    """Build of the stages of a Dockerfile.

    ``images``: stages already built, for the stages that use them."""

    text: str
    sources: Sources
    base: DebianRoot
    folder: Path

    def __post_init__(self) -> None:
        self._stages = stages(self.text)
        self.images: dict[str, Image] = {}

    def image(self, name: str) -> Image:
        if name not in self.images:
            stage = self._stages[name]
            made_of = self.image(stage.base) if stage.base in self._stages else Image(self.base, {})
            image = replace(made_of, root=made_of.root.copy(self.folder / name))
            for word, rest in stage.instructions:
                image = self._after(image, word, rest)
            self.images[name] = image
        return self.images[name]

    def _after(self, image: Image, word: str, rest: str) -> Image:
        match word:
            case "RUN":
                image.root.build("sh", "-c", rest, cwd=image.cwd, environment=image.environment)
            case "COPY":
                self._copy(image, rest.split())
            case "WORKDIR":
                (image.root.folder / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                return replace(image, cwd=rest)
            case "ENV":
                settings = dict(setting.split("=", 1) for setting in shlex.split(rest))
                return replace(image, environment={**image.environment, **settings})
            case "USER":
                return replace(image, user=rest)
            case "CMD":
                return replace(image, command=tuple(json.loads(rest)))
            case _:
                raise AssertionError(f"what is {word}?")
        return image

    def _copy(self, image: Image, words: list[str]) -> None:
        of_stage = self.image(words.pop(0).removeprefix("--from=")) if words[0].startswith("--") else None
        *sources, target = words
        to = image.root.folder / str(PurePosixPath(image.cwd, target)).lstrip("/")
        if target.endswith("/"):
            to.mkdir(parents=True, exist_ok=True)
        for source in sources:
            if of_stage:
                shutil.copytree(of_stage.root.folder / source.lstrip("/"), to, symlinks=True, dirs_exist_ok=True)
            else:
                self.sources.copy(source, to)
