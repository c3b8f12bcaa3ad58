"""The class of the processor, another class imitated, and equal threads for all."""

from __future__ import annotations

import os

#: what makes a processor of a better class do as one of a lesser: torch's own kernels, oneDNN, MKL,
#: FBGEMM, OpenBLAS (numpy's, scipy's and FAISS's), FAISS' own, and what cde multiplies in
IMITATIONS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "FAISS_SIMD_LEVEL": "AVX2",
        "CDE_PRECISION": "float32",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
        "FAISS_SIMD_LEVEL": "AVX512",
        "CDE_PRECISION": "float32",
    },
}
_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",  # of the tokenizers
    "NUMEXPR_NUM_THREADS",
)


def environment(threads: int, imitate: str | None) -> dict[str, str]:
    """The environment of the processes that measure."""
    waits = {} if "OMP_WAIT_POLICY" in os.environ else {"GOMP_SPINCOUNT": "10000"}
    return {
        **waits,
        **os.environ,
        **dict.fromkeys(_THREADS, str(threads)),
        **(IMITATIONS[imitate] if imitate else {}),
    }


def imitated() -> bool:
    """Whether what is set makes another class of this processor."""
    from cde import hardware

    return hardware.cpu_class() != cpu_class().replace("amx", "bfloat16")


def variables() -> dict[str, str]:
    """What is set that may keep the processor from doing what it can, by `--imitate` or before."""
    names = {name for one in IMITATIONS.values() for name in one}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def cpu_class() -> str:
    """The class of what computes here, with what is set that keeps it from what it can. Of
    `cde.hardware`'s class bfloat16, processors with AMX are a class of their own.
    """
    import torch

    from cde.hardware import half_precision, has_amx

    if torch.cuda.is_available():
        return "cuda"
    if half_precision("auto"):
        return "amx" if has_amx() else "bfloat16"
    capability = str(torch.backends.cpu.get_cpu_capability())
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(capability, "other")
