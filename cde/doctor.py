"""`cde doctor`: is this machine fit, and what will it use?"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence

from cde.storage import cache_folder, lock_reach

__all__ = ["report"]

Check = tuple[str, bool, str]  # what is checked, whether it is well, what was found


#: what a class of machine is fast at; `benchmarks/precision.py` measures it
_CLASSES = {
    "cuda": "a GPU: bfloat16 is faster than float32, and int8 is for CPUs",
    "bfloat16": "a CPU of class bfloat16 (AMX or AMD's AVX512-BF16): faster than float32, and int8 "
    "as fast",
    "avx512": "a CPU of class avx512: bfloat16 is slow, and int8 embeds faster than float32",
    "avx2": "a CPU of class avx2: bfloat16 is slow, and int8 embeds faster than float32",
    "other": "another CPU: whether bfloat16 and int8 are faster than float32 was not measured",
}
_LOCKS = {
    "own": "other machines do not see this one's locks in the cache, by the options of its mount: "
    "two may train the same run. Mount it with locks, or give each machine a CDE_CACHE of its own",
    "unknown": "this kind of disk does not tell whether other machines see locks in the cache: if "
    "they do not, two may train the same run",
}


def _checks() -> Iterator[Check]:
    import torch

    from cde.data.sources import list_sources
    from cde.hardware import chosen_precision, cpu_class
    from cde.surrogate import minilm_folder

    yield "Python", True, f"{platform.python_version()} on {platform.platform()}"
    gpu = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else "no GPU: everything runs on the CPU"
    )
    yield "device", True, f"{gpu}; {torch.get_num_threads()} threads"
    kind, chosen = cpu_class(), os.environ.get("CDE_PRECISION", "auto")
    own = f" (CDE_PRECISION={chosen})" if chosen != "auto" else ""
    yield "precision", True, f"{_CLASSES[kind]}; auto is {chosen_precision('auto')}{own}"
    flash = importlib.util.find_spec("flash_attn") is not None
    yield (
        "flash-attn",
        True,
        "installed" if flash else "not installed; torch's own attention is used",
    )
    try:
        yield "MiniLM", True, f"{minilm_folder()} (sha256 checked)"
    except (ModuleNotFoundError, ValueError) as error:
        yield "MiniLM", False, str(error)
    folder = cache_folder()
    free = shutil.disk_usage(folder).free / 2**30
    yield "cache", free > 2, f"{folder}, {free:.0f} GiB free"
    if told := _LOCKS.get(reach := lock_reach(folder)):
        yield "locks", reach != "own", told
    try:
        count = sum(source.name.startswith(("beir/", "pairs/")) for source in list_sources())
        data = os.environ.get("CDE_DATA")
        yield "CDE_DATA", True, f"{data}: {count} collections" if data else "not set: pydocs only"
    except FileNotFoundError as error:
        yield "CDE_DATA", False, str(error)


def report(more: Sequence[Callable[[], Iterator[Check]]] = ()) -> int:
    """Print one line per check; return 0 if all is well, 1 if something needs mending."""
    good = True
    for checks in (_checks, *more):
        for name, passed, detail in checks():
            good = good and passed
            print(f"{'ok  ' if passed else 'FAIL'}  {name:<11} {detail}")
    return 0 if good else 1
