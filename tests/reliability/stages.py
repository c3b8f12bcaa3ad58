"""Pieces of work that are killed: each does what it has not done yet, and returns its numbers.

A server (`python stages.py FOLDER STAGE…`) imports what the stages need once, and forks a child
for each line that it reads: a stage, a folder to work in, a file for the numbers, and a mark that
the child's own children inherit. So a kill costs the work alone, not five seconds of imports.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "book")]

#: variable by which the processes of one attempt are told
MARK = "CDE_KILLED_ATTEMPT"

SUBJECTS = ("boats", "hills", "lamps", "rivers", "stones", "gardens", "engines", "bridges")
DEEDS = ("are red", "are painted", "stand still", "are sold", "fall down", "were built", "shine")
TEXTS = [f"the {deed} ones of all {subject}" for subject in SUBJECTS for deed in DEEDS]

Work = Callable[[Path], Any]


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def flipped(data: bytes, bit: int) -> bytes:
    """Data with one bit that is another."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def toy_pairs() -> Any:
    """Training pairs of the texts."""
    from cde.data import Pairs

    rows = [str(row) for row in range(len(TEXTS))]
    return Pairs([f"which {text[4:]}" for text in TEXTS], TEXTS, ["toy"] * len(TEXTS), rows)


def extraction(shared: Path) -> Work:
    """The docstrings of two packages, by worker processes."""
    from cde_studies.collections import pydocs

    pydocs.PACKAGES = {"rich": "rich", "mpmath": "mpmath"}  # type: ignore[misc]
    key = pydocs.source_key(("rich", "mpmath"))
    pydocs.source_key = lambda: key  # type: ignore[assignment,misc]
    return lambda folder: pydocs.load_pairs(["rich", "mpmath"], split="all").fingerprint


def embedding(shared: Path) -> Work:
    """Texts embedded by MiniLM, kept after each eighth."""
    from cde import surrogate

    surrogate._PORTION = 7
    model = surrogate.Surrogate(max_tokens=12, precision="float32", device="cpu")
    assert model.sentence_model  # read before the forks
    return lambda folder: digest(model.embed(TEXTS).tobytes())


def training(shared: Path) -> Work:
    """A tiny contextual encoder, with a checkpoint after every second step."""
    from tiny_encoders import BRIEF, backbone_folder

    import cde

    start, pairs = backbone_folder(shared / "backbone", "bert"), toy_pairs()
    longer = {"steps": 24, "learning_rate": 1e-3, "context_size": 4, "context_tokens": 8}
    config = cde.TrainConfig(start=str(start), **BRIEF | longer)

    def work(folder: Path) -> list[Any]:
        run = cde.train(config, pairs)
        weights = (run.folder / "model" / "model.safetensors").read_bytes()
        return [run.metrics["loss"].tolist(), digest(weights)]

    return work


def indexing(shared: Path) -> Work:
    """An index of a folder, built in parts by a tiny encoder, which is kept in it."""
    from tiny_encoders import bi_encoder

    from cde import Index
    from cde.corpus import index

    encoder, index.PART = bi_encoder(), 4

    def work(folder: Path) -> list[Any]:
        made = Index.build(TEXTS, folder / "index", encoder=encoder)
        model = next((folder / "index").glob("encoder-*/model.safetensors"))
        return [made.fingerprint, digest(model.read_bytes())]

    return work


def toy_book(folder: Path) -> Any:
    """The toy book of the command's tests, with two chapters."""
    from toy_book import DRAWING, ToyBook

    book = ToyBook(folder)
    body = "total = sum(1 / (1 + number + seed) for number in range(300_000))\nprint(total)"
    book.write(words=f"from cde import lexical\n\n{body}", drawing=DRAWING)
    return book


def own_copy(shared: Path, folder: Path) -> Path:
    """The toy book in a folder, copied whole or not at all; leftovers go, as by `cde book`."""
    from cde.storage import remove_leftovers

    root = folder / "toy"
    if not root.exists():
        shutil.copytree(shared / "toy", folder / "copy")
        (folder / "copy").rename(root)
    remove_leftovers(root / "book", below=True)
    return root


def executing(shared: Path) -> Work:
    """A chapter of a toy book, in a kernel of its own."""
    from cde_book.chapters import Chapter
    from cde_book.checkout import python_path
    from cde_book.execution import execute, load_execution, raw_notebook, stale_reasons

    toy_book(shared / "toy")
    os.environ["PYTHONPATH"] = python_path(shared / "toy")  # of the kernel

    def work(folder: Path) -> list[Any]:
        root = own_copy(shared, folder)
        chapter = Chapter(root / "notebooks" / "toys" / "words.py")
        if stale_reasons(chapter, "smoke", root):
            execute(chapter, {"profile": "smoke"}, raw_notebook(chapter, "smoke", root), root)
        log = load_execution(chapter, "smoke", root)
        assert log is not None and not log.error, log and log.error
        cells = json.loads(raw_notebook(chapter, "smoke", root).read_text())["cells"]
        said = [
            output["text"]
            for cell in cells
            for output in cell.get("outputs", ())
            if "text" in output
        ]
        return [log.answer, log.measurements, said]

    return work


def rendering(shared: Path) -> Work:
    """The pages of a toy book, its chapters executed before, by Jupyter Book."""
    from cde_book.chapters import chapters
    from cde_book.checkout import python_path
    from cde_book.execution import execute, raw_notebook
    from cde_book.pages import write_pages
    from cde_book.rendering import render

    book = toy_book(shared / "toy")
    os.environ["PYTHONPATH"] = python_path(book.root)
    for chapter in chapters(book.root):
        path = raw_notebook(chapter, "smoke", book.root)
        execute(chapter, {"profile": "smoke"}, path, book.root)

    def work(folder: Path) -> list[Any]:
        root = own_copy(shared, folder)
        write_pages("smoke", root)
        html = render(root).parent
        pages = sorted(html.rglob("*.html"))
        return [[path.relative_to(html).as_posix(), digest(path.read_bytes())] for path in pages]

    return work


STAGES: dict[str, Callable[[Path], Work]] = {
    "extraction": extraction,
    "embedding": embedding,
    "training": training,
    "indexing": indexing,
    "executing": executing,
    "rendering": rendering,
}


def serve(shared: Path, stages: Sequence[str]) -> None:
    """Fork a child for each line of `stage TAB folder TAB result TAB mark`; say its number, and
    how it ended.
    """
    shared.mkdir(parents=True, exist_ok=True)
    os.environ["CDE_CACHE"] = str(shared / "cache")
    work = {stage: STAGES[stage](shared) for stage in stages}
    from cde import storage

    print("ready", flush=True)
    for line in sys.stdin:
        stage, folder, result, mark = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            os.setsid()
            storage._swept.clear()
            os.environ[MARK] = mark
            os.environ["CDE_CACHE"] = str(Path(folder) / "cache")
            errors = os.open(Path(folder) / "errors.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(errors, number)
            status = 1
            try:
                numbers = work[stage](Path(folder))
                Path(result).write_text(json.dumps(numbers))
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(child, flush=True)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2:])
