"""Crops are what they say, chains share their beginnings, and each phase learns its own task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

import numpy as np
import pytest

from cde.batching.negatives import mine_hard_negatives
from cde.data import Pairs
from cde.models.encoder import load_tokenizer
from cde.training import Trainer
from cde_studies.dwell.chain import Phase, crop_pairs, shuffle_segments, train_phase
from cde_studies.dwell.encoder_decoder import EncoderDecoder
from cde_studies.dwell.recipe import dwell_recipe

TOKENIZER = load_tokenizer("minilm")
LETTERS = [f"{first}{second}" for first in "abcd" for second in "eiou"]
START = Phase("start", {"layers": 1, "precision": "float32", "device": "cpu", "max_tokens": 32})
TEXTS = [" ".join(np.random.default_rng(number).choice(LETTERS, 40)) for number in range(24)]
PAIRS = Pairs(
    [text[:8] for text in TEXTS], TEXTS, ["x"] * 24, [str(number) for number in range(24)]
)
CONTRASTIVE = {
    "batch_size": 8, "steps": 2, "query_tokens": 16, "document_tokens": 32, "learning_rate": 1e-3,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def start_small(small_start: str) -> Iterator[None]:
    """Chains begin with word embeddings of 32 dimensions in MiniLM's place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(START.settings, "tokenizer", small_start)
        yield


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Settings and hard negatives of each training, as they begin."""
    begun, make = [], Trainer.__init__

    def noted(self: Trainer, config: Any, *arguments: Any, **options: Any) -> None:
        begun.append((config, options["hard_negatives"]))
        make(self, config, *arguments, **options)

    monkeypatch.setattr(Trainer, "__init__", noted)
    return begun


def test_a_crop_is_a_tenth_to_a_half_of_its_document_and_stands_in_it() -> None:
    text = " ".join(ascii_lowercase + digits)
    pairs = crop_pairs([text, "short"], TOKENIZER, 400)
    lengths = [len(side.split()) for pair in pairs for side in pair]
    assert all(side in text for pair in pairs for side in pair)
    assert min(lengths) >= 3
    assert max(lengths) <= 18
    assert np.mean(lengths) == pytest.approx(0.3 * 36, rel=0.08)
    both = np.corrcoef(lengths[::2], lengths[1::2])[0, 1]
    assert abs(both) < 0.15, "the two crops are drawn independently"


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_crop_is_one_run_of_its_document_of_just_its_share(share: float) -> None:
    words = list(ascii_lowercase[:24])
    pairs = crop_pairs([" ".join(words)], TOKENIZER, 100, shares=(share, share))
    size = round(share * 24)
    runs = [" ".join(words[at : at + size]) for at in range(len(words) - size + 1)]
    crops = [side for pair in pairs for side in pair]
    assert set(crops) == set(runs), "each run there is, and no other"


def test_every_document_is_cropped_once_before_any_is_cropped_twice() -> None:
    texts = [" ".join([word] * 12) for word in LETTERS]
    pairs = crop_pairs(texts, TOKENIZER, 2 * len(texts) + 3)
    drawn = [query.split()[0] for query in pairs.queries]
    assert sorted(drawn[: len(texts)]) == sorted(LETTERS)
    assert sorted(drawn[len(texts) : 2 * len(texts)]) == sorted(LETTERS)
    with pytest.raises(ValueError, match="none of 1 texts has 10 tokens"):
        crop_pairs(["short"], TOKENIZER, 1)


def test_shuffled_documents_keep_their_tokens_and_lose_their_order() -> None:
    text = " ".join(ascii_lowercase)
    shuffled = shuffle_segments([text, "too short"], TOKENIZER)
    assert sorted(shuffled[0].split()) == text.split()
    assert shuffled[0] != text
    assert shuffled[1] == "too short"
    firsts = Counter(one.split()[0] for one in shuffle_segments([text] * 500, TOKENIZER))
    assert len(firsts) == 10
    assert max(firsts.values()) < 90


@pytest.mark.slow
def test_chains_share_what_they_have_in_common(private_cache: Path, trainings: list[Any]) -> None:
    crops = Phase("crops", CONTRASTIVE, START)
    tuned = Phase("tune", {**CONTRASTIVE, "hard_negatives": 1}, crops)
    first = train_phase(tuned, TEXTS, PAIRS)
    done = {path.parent.name for path in private_cache.glob("runs/*/run.json")}
    assert len(done) == 3
    trainings.clear()
    assert train_phase(tuned, TEXTS, PAIRS) == first
    assert not trainings
    again = train_phase(Phase("tune", {**CONTRASTIVE, "hard_negatives": 1}, tuned), TEXTS, PAIRS)
    assert len(trainings) == 1, "only the new episode is trained"
    other = train_phase(tuned, TEXTS, PAIRS, seed=1)
    assert len({first, again, other}) == 3
    assert len(trainings) == 3


@pytest.mark.slow
def test_an_episode_takes_the_documents_that_its_own_start_ranks_highest(
    private_cache: Path, trainings: list[Any]
) -> None:
    settings = {**CONTRASTIVE, "hard_negatives": 2}
    first = Phase("tune", settings, START)
    model = EncoderDecoder.from_pretrained(train_phase(first, TEXTS, PAIRS) / "model")
    vectors = model.encode_queries(PAIRS.queries), model.encode_documents(PAIRS.documents)
    train_phase(Phase("tune", settings, first), TEXTS, PAIRS)
    np.testing.assert_array_equal(trainings[-1][1], mine_hard_negatives(*vectors, 2))


@pytest.mark.slow
def test_each_episode_sees_other_batches(private_cache: Path, trainings: list[Any]) -> None:
    settings = {**CONTRASTIVE, "steps": 1}
    last = Phase("crops", settings, START)
    for _ in range(3):
        last = Phase("tune", settings, last)
    train_phase(last, TEXTS, PAIRS, seed=4)
    seeds = [config.seed for config, _ in trainings]
    assert len(set(seeds[1:])) == 3
    assert seeds[:2] == [4, 4]


@pytest.mark.slow
def test_a_stage_of_no_use_gives_back_what_it_began_with(private_cache: Path) -> None:
    """With a learning rate of nought in all but name each phase returns the weights before it."""
    idle = {**CONTRASTIVE, "learning_rate": 1e-30}
    restore = Phase(
        "restore", {"steps": 2, "batch_size": 4, "tokens": 16, "learning_rate": 1e-30}, START
    )
    last = Phase("tune", idle, Phase("crops", idle, restore))
    assert last.chain == ["start", "restore", "crops", "tune"]
    begun, ended = (
        EncoderDecoder.from_pretrained(train_phase(phase, TEXTS, PAIRS) / "model")
        for phase in (START, last)
    )
    np.testing.assert_allclose(
        ended.encode_documents(TEXTS), begun.encode_documents(TEXTS), atol=1e-6
    )


@pytest.mark.slow
def test_a_stage_differs_by_its_data_only_if_it_uses_them(private_cache: Path) -> None:
    crops = Phase("crops", CONTRASTIVE, START)
    assert train_phase(START, TEXTS, PAIRS) == train_phase(START, TEXTS[:4], PAIRS)
    one = train_phase(crops, TEXTS, PAIRS)
    assert train_phase(crops, TEXTS[::-1], PAIRS) != one
    assert train_phase(crops, TEXTS, PAIRS.select(range(8))) == one


def test_the_chains_of_the_recipe_are_what_their_names_say() -> None:
    chains = dwell_recipe("smoke").phases
    restored, cropped = chains["language model"], chains["crops"]
    assert restored.chain == ["start", "restore"]
    assert chains["tuned"].after == cropped
    # what differs between two chains is one thing
    assert chains["mean"].after == cropped.after == restored
    assert set(chains["mean"].settings) - set(cropped.settings) == {"pooling"}
    with pytest.raises(ValueError, match="there is no setting layers"):
        dwell_recipe("smoke", layers=2)


def test_what_is_probed_was_never_trained_on() -> None:
    using = dwell_recipe("smoke")
    trained = {name.split(".")[0] for name in using.pairs.ids}
    probed = {name.split(".")[0] for name in using.passages.collection.document_ids}
    assert probed
    assert not trained & probed


@pytest.mark.parametrize("profile", ["smoke", "laptop", "gpu"])
@pytest.mark.slow
def test_no_stage_cuts_off_what_the_probes_read(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A phase that cut long documents would teach that their ends do not matter."""
    monkeypatch.setattr("cde_studies.dwell.recipe.HELD_OUT", ("networkx",))
    using = dwell_recipe(profile, documents=300, data="pydocs/pandas")
    texts = [*using.pairs.documents, *using.probed]
    lengths = [len(row) for row in TOKENIZER(texts)["input_ids"]]
    assert max(lengths) <= min(using.tune["document_tokens"], using.start["max_tokens"])
    assert np.quantile(lengths, 0.9) > 0.5 * max(lengths)
    crops = crop_pairs(using.pairs.documents, TOKENIZER, 600)
    longest = max(
        len(row)
        for side in (crops.queries, crops.documents)
        for row in TOKENIZER(list(side))["input_ids"]
    )
    assert longest <= using.crops["query_tokens"]
