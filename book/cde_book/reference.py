"""The reference: every public name of the package, once, on the page of its room, with links from
the chapters that call it and back to them.

What is public is what a module lists in `__all__`. Names are read from the sources by `ast` and
nothing is imported, so that `cde book` does not load torch for a list of them. Sphinx imports the
package when it renders (autodoc for signatures and docstrings, napoleon for their sections,
viewcode for the sources). The extension `book/_ext/code_names.py` tells it which name a word in a
docstring leads to.

Cost: half a second, once a process, and fifteen to twenty seconds of the first rendering, four of
them the import of torch and transformers; later ones read again only the rooms that changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import cde
from cde_book.chapters import Chapter, chapters
from cde_book.markup import render

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

        A dotted path is followed through every re-export. A bare name is looked up in the room that
        the docstring is in; one in CamelCase, which no argument has, then in all rooms.
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
        # what a package lends on first use stands in its stub
        stub = path.with_suffix(".pyi")
        lent = ast.parse(stub.read_text(encoding="utf-8")).body if stub.exists() else []
        for node in [*self.tree.body, *lent]:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")]):
                    self.listed = ast.literal_eval(node.value)
                case (
                    ast.FunctionDef(name=name)
                    | ast.ClassDef(name=name)
                    | ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    self.definitions[name] = node
                case ast.ImportFrom():
                    place = f"{module}.{node.module}" if node.level else node.module or ""
                    if place.startswith("cde."):
                        for one in node.names:
                            self.imported[one.asname or one.name] = f"{place}.{one.name}"
        if lent:
            self.listed = list(self.imported)

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
        return Entry(self.module, name, path, kind, _first_paragraph(docstring), short)


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
    listed = [f"{name}.{one}" for name, source in sources.items() for one in source.listed]
    origins = {path: _origin(path, sources) for path in listed}
    shortest: dict[str, str] = {}
    for path in sorted(origins, key=lambda one: one.count(".")):
        shortest.setdefault(origins[path], path)
    entries: dict[str, Entry] = {}
    for origin, path in shortest.items():
        module, _, name = origin.rpartition(".")
        entries[origin] = sources[module].entry(name, path)
    modules = {
        module: sorted(
            (entry for entry in entries.values() if entry.module == module),
            key=lambda entry: sources[entry.module].definitions[entry.name].lineno,
        )
        for module in sources
        if module != "cde"
    }
    sentences = {
        name: _first_paragraph(ast.get_docstring(source.tree) or "")
        for name, source in sources.items()
    }
    known = entries | {path: entries[origin] for path, origin in origins.items()}
    return Reference(modules, known, sentences)


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


@cache
def names_used(chapter: Chapter) -> list[Entry]:
    """The public names that a chapter's own code calls, by path."""
    paths = read_reference().paths
    tree = ast.parse(chapter.source)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cde":
            bound |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] == "cde":
                    bound[one.asname or "cde"] = one.name if one.asname else "cde"
    used = {paths[path].path: paths[path] for path in bound.values() if path in paths}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if entry := paths.get(f"{bound.get(first)}.{rest}"):
                used[entry.path] = entry
    return [used[path] for path in sorted(used)]


def reference_pages(root: Path) -> dict[str, str]:
    """The pages of the reference: path below `book/generated` → Markdown."""
    reference, known = read_reference(), chapters(root)
    callers: dict[str, list[Chapter]] = {}
    for chapter in known:
        for entry in names_used(chapter):
            callers.setdefault(entry.target, []).append(chapter)
    pages = {"package.md": render("package.md.j2", reference=reference)}
    for room, modules in reference.rooms.items():
        values = {"room": room, "modules": modules, "reference": reference, "callers": callers}
        pages[f"reference/{room}.md"] = render("room.md.j2", **values)
    return pages
