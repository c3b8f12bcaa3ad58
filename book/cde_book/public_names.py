"""The public names of the package: where each is defined, and by which paths it is imported.

What is public is what a module lists in `__all__`. Everything is read from the sources by `ast`;
nothing is imported, so that `cde book` does not load torch for a list of names.

Cost: half a second, once a process.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import cde

__all__ = ["ROOMS", "Entry", "Reference", "read_reference", "reference_files"]

#: rooms of the package that have a page, in the order in which they build on each other
ROOMS = (
    "data",
    "lexical",
    "intervals",
    "retrieval",
    "surrogate",
    "adaptation",
    "batching",
    "models",
    "training",
    "benchmark",
    "corpus",
)
_PACKAGE = Path(cde.__file__).resolve().parent
_Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Entry:
    """A public name of the package."""

    module: str
    name: str
    path: str
    kind: str
    summary: str
    short: bool
    docstring: str

    @property
    def target(self) -> str:
        """What its entry in the reference is called: the path to where it is defined."""
        return f"{self.module}.{self.name}"

    @property
    def room(self) -> str:
        """The room that it is defined in."""
        return self.module.split(".")[1]

    @property
    def page(self) -> str:
        """The page of its room, as the table of contents has it."""
        return f"book/generated/reference/{self.room}"


@dataclass(frozen=True)
class Reference:
    """Every public name of the documented rooms."""

    modules: Mapping[str, Sequence[Entry]]
    paths: Mapping[str, Entry]
    public: Sequence[Entry]
    sentences: Mapping[str, str]

    @cached_property
    def rooms(self) -> dict[str, list[str]]:
        """Room → its modules, the room's own `__init__` first."""
        rooms: dict[str, list[str]] = {}
        for module in self.modules:
            rooms.setdefault(module.split(".")[1], []).append(module)
        return rooms

    @cached_property
    def _by_name(self) -> dict[str, list[Entry]]:
        named: dict[str, list[Entry]] = {}
        for entries in self.modules.values():
            for entry in entries:
                named.setdefault(entry.name, []).append(entry)
        return named

    def find(self, target: str, room: str = "") -> str | None:
        """Where a word between backticks leads to: an entry's target, or a method's below it.

        A dotted path below `cde` is followed through every re-export. A bare name, or a method of a
        bare name, is looked up among the names of the room that the docstring is in; names in
        CamelCase, which no argument has, then among those of all rooms. What is ambiguous leads
        nowhere.
        """
        parts = target.removesuffix("()").split(".")
        for end in range(len(parts), 1, -1):
            entry = self.paths.get(".".join(parts[:end]))
            if entry is not None:
                return ".".join((entry.target, *parts[end:]))
        named = self._by_name.get(parts[0], [])
        within = [entry for entry in named if entry.room == room]
        found = within or (named if re.match(r"[A-Z]+[a-z]|[A-Z]+\d", parts[0]) else [])
        return ".".join((found[0].target, *parts[1:])) if len(found) == 1 else None


class _Source:
    """A source file of the package, parsed: what it lists, defines and imports from the package."""

    def __init__(self, path: Path, module: str) -> None:
        self.module = module
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.listed: list[str] = []
        self.definitions: dict[str, _Definition] = {}
        self.imported: dict[str, str] = {}
        for node in _statements(self.tree.body):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.definitions[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                if names == ["__all__"] and node.value is not None:
                    self.listed = ast.literal_eval(node.value)
                self.definitions |= dict.fromkeys(names, node)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cde."):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    @cached_property
    def comments(self) -> dict[tuple[str, str], list[str]]:
        from sphinx.pycode import ModuleAnalyzer

        return ModuleAnalyzer.for_string(self.text, self.module).find_attr_docs()

    def entry(self, name: str, path: str) -> Entry:
        node, short = self.definitions[name], False
        if isinstance(node, ast.Assign | ast.AnnAssign):
            kind, docstring = "data", "\n".join(self.comments.get(("", name), ()))
            short = node.value is not None and _is_short(node.value)
        else:
            bases = [ast.unparse(base).partition("[")[0] for base in getattr(node, "bases", ())]
            is_class = isinstance(node, ast.ClassDef)
            kind = "protocol" if "Protocol" in bases else "class" if is_class else "function"
            docstring = ast.get_docstring(node) or ""
        return Entry(self.module, name, path, kind, _first_paragraph(docstring), short, docstring)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those of its `if TYPE_CHECKING` too."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _statements(node.body)


def _is_short(value: ast.expr) -> bool:
    """Whether a constant is written out and fits beside its name."""
    try:
        constant = ast.literal_eval(value)
    except ValueError:
        return False
    return not isinstance(constant, dict | list) and len(ast.unparse(value)) <= 60


def _first_paragraph(docstring: str) -> str:
    return " ".join(docstring.strip().partition("\n\n")[0].split())


@cache
def read_reference() -> Reference:
    """Read the public names of the documented rooms from the sources of this package."""
    sources = {_dotted(path): _Source(path, _dotted(path)) for path in reference_files()}
    origins: dict[str, str] = {}
    for source in sources.values():
        names = source.listed if source.module != "cde" else source.imported
        for name in names:
            origins[f"{source.module}.{name}"] = _origin(f"{source.module}.{name}", sources)
    by_origin: dict[str, list[str]] = {}
    for path, origin in origins.items():
        by_origin.setdefault(origin, [origin]).append(path)
    entries: dict[str, Entry] = {}
    for origin, paths in by_origin.items():
        module, _, name = origin.rpartition(".")
        path = min(paths, key=lambda one: one.count("."))
        entries[origin] = sources[module].entry(name, path)
    modules = {
        module: sorted(
            (entry for entry in entries.values() if entry.module == module),
            key=lambda entry: sources[entry.module].definitions[entry.name].lineno,
        )
        for module in sources
        if module != "cde"
    }
    public = [entry for some in modules.values() for entry in some if entry.path.count(".") == 1]
    sentences = {
        name: _first_paragraph(ast.get_docstring(source.tree) or "")
        for name, source in sources.items()
    }
    known = entries | {path: entries[origin] for path, origin in origins.items()}
    return Reference(modules, known, public, sentences)


def reference_files() -> list[Path]:
    """The sources that the reference is made of: those of the documented rooms, room by room."""
    files = [_PACKAGE / "__init__.py"]
    for room in ROOMS:
        single = _PACKAGE / f"{room}.py"
        files += [single] if single.exists() else sorted((_PACKAGE / room).glob("*.py"))
    return files


def _dotted(path: Path) -> str:
    parts = ("cde", *path.relative_to(_PACKAGE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _origin(path: str, sources: Mapping[str, _Source]) -> str:
    """Where a name is defined that may have been imported several times over."""
    module, _, name = path.rpartition(".")
    source = sources.get(module)
    if source is None or name not in source.definitions | source.imported:
        raise ValueError(
            f"the reference needs {path}, and there is no such definition: a name in `__all__` "
            "must be defined in its module or imported from another one of a documented room"
        )
    return path if name in source.definitions else _origin(source.imported[name], sources)
