"""What each precision of embedding is worth on a machine: speed and cosine, as ratios in one run.

Documents of pydocs at their own lengths through MiniLM, in batches by length as `encode_texts`
makes them: float32 and bfloat16, and, for comparison, torch's `quantize_dynamic` in int8; each in
batches of as many tokens as the library takes, and of so many as `--batch-tokens` names. Then what
share of such batches is padding, and what share of the time goes into the tokenizer. Rounds
alternate, so that a machine that slows down slows all.

`--openvino` adds what a user may take in place of all: the same weights in OpenVINO, in float32, in
int8 with ranges taken of each text (128 numbers at a time), and in int8 with fixed ranges, taken of
the first 60 texts. It needs `pip install openvino==2026.4.1 nncf==3.4.0`, which the book does not.

    python benchmarks/precision.py [--texts 300] [--rounds 5] [--threads 1] [--max-tokens 256]

Another class of processor is imitated by the environment:
AVX2 by ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2
FBGEMM_ENABLE_INSTRUCTIONS=AVX2, AVX512 with VNNI by ATEN_CPU_CAPABILITY=avx512
ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI, and without it by ONEDNN_MAX_CPU_ISA=AVX512_CORE.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from functools import partial

import numpy as np
import torch
from measuring import in_turns, ratio
from torch import Tensor

import cde
from cde.hardware import tokens_at_once
from cde.models import BiEncoder
from cde.models.encoder import encode_texts, token_batches, tokenise
from cde.surrogate import minilm_folder


def dynamically(encoder: BiEncoder) -> BiEncoder:
    """The encoder with torch's own dynamic quantisation, per channel."""
    from torch.ao import quantization

    copied = copy.deepcopy(encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated in favour of torchao
        copied.backbone = quantization.quantize_dynamic(
            copied.backbone, {torch.nn.Linear: quantization.per_channel_dynamic_qconfig}
        )
    return copied


def of_openvino(encoder: BiEncoder, texts: list[str], threads: int) -> dict[str, BiEncoder]:
    """Encoders whose `forward` is MiniLM's in OpenVINO, by name."""
    import nncf
    import openvino
    from transformers import AutoModel

    class Mean(torch.nn.Module):
        """MiniLM's mean over tokens."""

        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(str(minilm_folder())).eval()

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
            kept = attention_mask.unsqueeze(-1).float()
            return (hidden * kept).sum(1) / kept.sum(1)  # type: ignore[no-any-return]

    inputs = ("input_ids", "attention_mask")
    some = {name: torch.ones(2, 9, dtype=torch.long) for name in inputs}
    plain = openvino.convert_model(Mean(), example_input=some)
    weights = nncf.compress_weights(plain.clone(), mode=nncf.CompressWeightsMode.INT8_SYM)
    cut = {"truncation": True, "max_length": encoder.most_tokens, "return_tensors": "np"}
    rows = [encoder.tokenizer([text], **cut) for text in texts[:60]]
    sample = nncf.Dataset([{name: row[name] for name in inputs} for row in rows])
    fixed = nncf.quantize(plain.clone(), sample, model_type=nncf.ModelType.TRANSFORMER)
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    by_text = {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 128}

    def encoder_of(model: object, further: dict[str, int]) -> BiEncoder:
        request = openvino.compile_model(model, "CPU", {**options, **further})

        def forward(ids: Tensor, mask: Tensor | None) -> Tensor:
            whole = torch.ones_like(ids) if mask is None else mask.long()
            return torch.from_numpy(request([ids.numpy(), whole.numpy()])[0])

        copied = copy.copy(encoder)
        copied.precision, copied.forward = "float32", forward
        return copied

    return {
        "OpenVINO, float32": encoder_of(plain, {}),
        "OpenVINO, int8": encoder_of(weights, by_text),
        "OpenVINO, int8, fixed": encoder_of(fixed, {}),
    }


def embedding(encoder: BiEncoder, texts: list[str], tokens: int | None) -> np.ndarray:
    """The texts' vectors, computed so many tokens at a time."""
    with encoder.evaluating():
        return encode_texts(
            texts,
            encoder.tokenizer,
            encoder.forward,
            shape=(encoder.dim,),
            max_tokens=encoder.most_tokens,
            device=encoder.device,
            precision=encoder.precision,
            work=tokens,
        )


def padding(encoder: BiEncoder, texts: list[str]) -> float:
    """The share of padding among the tokens of batches by length."""
    lengths = [len(row) for row in tokenise(encoder.tokenizer, texts, encoder.most_tokens)]
    batches = token_batches(lengths, tokens_at_once("cpu", encoder.precision))
    computed = sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)
    return 1 - sum(lengths) / computed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--only", nargs="+", default=["float32", "bfloat16", "quantize_dynamic"])
    parser.add_argument("--openvino", action="store_true")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = cde.load_pairs().sample(options.texts).documents
    encoder = BiEncoder.from_backbone(device="cpu", max_tokens=options.max_tokens)
    encoders = {}
    for name in options.only:
        made = dynamically(encoder) if name == "quantize_dynamic" else copy.copy(encoder)
        made.precision = "float32" if name == "quantize_dynamic" else name
        encoders[name] = made
    if options.openvino:
        encoders |= of_openvino(encoder, texts, options.threads)
    arms = {
        name if tokens is None else f"{name}, {tokens:,} at once": partial(
            embedding, one, texts, tokens
        )
        for name, one in encoders.items()
        for tokens in (None, *options.batch_tokens)
    }
    vectors = {name: arm() for name, arm in arms.items()}
    seconds = in_turns(arms, options.rounds)
    print(f"{cde.hardware.cpu_class()}, {torch.get_num_threads()} threads, {len(texts)} texts")
    for name in arms:
        cosine = (vectors[name] * vectors["float32"]).sum(axis=1)
        print(
            f"{name:26s} {len(texts) / statistics.median(seconds[name]):6.1f} texts/s, times "
            f"float32: {ratio(seconds['float32'], seconds[name])}; cosine to it "
            f"{cosine.min():.4f} at least, {cosine.mean():.4f} on average"
        )
    begun = time.perf_counter()
    tokenise(encoder.tokenizer, texts, options.max_tokens)
    taken = time.perf_counter() - begun
    for name in arms:
        share = taken / statistics.median(seconds[name])
        print(f"tokenizer's share of the time in {name}: {share:.1%}")
    print(f"padding: {padding(encoder, texts):.1%} of the tokens")
