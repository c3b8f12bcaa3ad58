"""The surrogate's vectors against sentence-transformers', its cache, and its errors."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.constants
import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_encoders import backbone_folder, static_embeddings

from cde import hardware, surrogate
from cde.surrogate import Surrogate, minilm_folder

Vectors = NDArray[np.float32]


@pytest.fixture(scope="module")
def plain() -> Surrogate:
    return Surrogate(precision="float32", cache=False)


@pytest.fixture(scope="module")
def reference(docstrings: list[str]) -> Vectors:
    """The same model, embedding one text at a time in float32, without this package."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(minilm_folder()), device="cpu")
    vectors = np.concatenate([model.encode([text]) for text in docstrings])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosines(first: Vectors, second: Vectors) -> Vectors:
    return (first * second).sum(axis=1)


# --- vectors


@pytest.mark.parametrize(("precision", "least"), [("float32", 0.9999), ("bfloat16", 0.999)])
def test_vectors_are_those_of_sentence_transformers(
    docstrings: list[str], reference: Vectors, precision: hardware.Precision, least: float
) -> None:
    vectors = Surrogate(precision=precision, cache=False, device="cpu").embed(docstrings)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(docstrings), 384)
    assert cosines(vectors, reference).min() > least
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_the_order_of_the_texts_and_their_company_do_not_matter(plain: Surrogate) -> None:
    texts = ["red boats", "scarlet ships and a few words more to pad", "a green house", "x"]
    vectors = plain.embed(texts)
    np.testing.assert_allclose(plain.embed(texts[::-1])[::-1], vectors, atol=1e-5)
    np.testing.assert_allclose(plain.embed(texts[2:3]), vectors[2:3], atol=1e-5)


def test_what_stands_beyond_max_tokens_changes_nothing(plain: Surrogate) -> None:
    """Two of the tokens are the model's own marks: of eight, six are words."""
    short = Surrogate(max_tokens=8, precision="float32", cache=False)
    texts = [
        "one two three four five six",
        "one two three four five six seven eight",
        "one two three four five",
    ]
    cut, whole = short.embed(texts), plain.embed(texts)
    np.testing.assert_allclose(cut[0], cut[1], atol=1e-6)
    np.testing.assert_allclose(cut[0], whole[0], atol=1e-5)
    assert np.abs(cut[0] - cut[2]).max() > 1e-3
    assert np.abs(whole[0] - whole[1]).max() > 1e-3


def test_static_embeddings_are_cut_as_well(tmp_path: Path) -> None:
    """Of a model without a transformer, whose length sentence-transformers cannot set."""
    folder = static_embeddings(tmp_path / "static")
    texts = ["one two three four", "one two three four five", "one two three"]
    cut = Surrogate(folder, max_tokens=4, cache=False).embed(texts)
    whole = Surrogate(folder, cache=False).embed(texts)
    np.testing.assert_allclose(cut, whole[[0, 0, 2]], atol=1e-6)
    assert np.abs(whole[0] - whole[1]).max() > 1e-3


def test_a_limit_above_the_models_own_is_the_models_own_and_says_so(plain: Surrogate) -> None:
    text = "boat " * 300
    with pytest.warns(UserWarning, match="reads 256 tokens of a text, and not 10000"):
        given = Surrogate(max_tokens=10_000, precision="float32", cache=False).embed([text])
    np.testing.assert_allclose(given, plain.embed([text]), atol=1e-6)


def test_the_folder_of_a_model_gives_the_vectors_of_its_name(plain: Surrogate) -> None:
    named = Surrogate(minilm_folder(), precision="float32", cache=False)
    assert named.dim == 384
    texts = ["red boats", "a green house"]
    for encode in (named.encode_queries, named.encode_documents):  # without prompts: alike
        np.testing.assert_allclose(encode(texts), plain.embed(texts), atol=1e-6)


def test_no_texts_have_no_vectors_of_the_right_length(plain: Surrogate) -> None:
    for empty in (plain.embed([]), plain.encode_queries(()), Surrogate().encode_documents([])):
        assert empty.shape == (0, 384)
        assert empty.dtype == np.float32


# --- the cache, with a stand-in for the model where its vectors do not matter


class Model:
    """Stands in for the model: a vector of the text's hash, and a list of what was asked for."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.asked: list[list[str]] = []
        self.fail_at = fail_at

    def __call__(self, texts: list[str], role: str, batch_size: int = 32) -> Vectors:
        if len(self.asked) == self.fail_at:
            raise KeyboardInterrupt
        self.asked.append(list(texts))
        seeds = (
            int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") for text in texts
        )
        drawn = np.stack([np.random.default_rng(seed).normal(size=384) for seed in seeds])
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def with_model(model: Model, **options: object) -> Surrogate:
    made = Surrogate(**options)  # type: ignore[arg-type]
    made._compute = model  # type: ignore[method-assign]
    return made


def test_only_texts_that_are_new_are_computed_and_each_of_them_once(private_cache: Path) -> None:
    with_model(Model()).embed(["a", "b"])
    model = Model()
    with_model(model).encode_queries(["c", "a", "c", "b", "d", "c"])
    assert sorted(itertools.chain(*model.asked)) == ["c", "d"]


def test_a_pickle_has_the_settings_and_no_weights_and_gives_the_same_vectors() -> None:
    used = Surrogate(max_tokens=16, precision="float32", cache=False)
    vectors = used.embed(["red boats"])
    pickled = pickle.dumps(used)
    assert len(pickled) < 1000
    assert (pickle.loads(pickled).embed(["red boats"]) == vectors).all()


def test_without_a_cache_nothing_is_kept(private_cache: Path) -> None:
    model = Model()
    for _ in range(2):
        with_model(model, cache=False).embed(["a"])
    assert len(model.asked) == 2
    assert not private_cache.exists()


def test_work_that_is_interrupted_is_kept_as_far_as_it_went(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved after each portion; the next call computes the rest, with the result of one run."""
    monkeypatch.setattr(surrogate, "_PORTION", 3)
    texts = [f"text {i}" for i in range(9)]
    broken, second = Model(fail_at=2), Model()
    with pytest.raises(KeyboardInterrupt):
        with_model(broken).embed(texts)
    kept = set(itertools.chain(*broken.asked))
    assert len(kept) == 6
    vectors = with_model(second).embed(texts)
    assert set(itertools.chain(*second.asked)) == set(texts) - kept
    assert (vectors == Model()(texts, "")).all()


def test_of_two_processes_that_compute_one_text_the_first_to_finish_is_kept(
    private_cache: Path,
) -> None:
    """So that a rerun on the same cache gives the same bits, however many wrote to it."""

    class Slow(Model):
        def __call__(self, texts: list[str], role: str, batch_size: int = 32) -> Vectors:
            with_model(Model()).embed(["a"])  # the other process, meanwhile
            return -super().__call__(texts, role, batch_size)

    for model in (Slow(), Model()):  # the call that came second, and any later one
        assert (with_model(model).embed(["a"]) == Model()(["a"], "")).all()


def test_what_another_process_has_embedded_meanwhile_is_not_embedded_again(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surrogate, "_PORTION", 3)
    texts, other = [f"text {i}" for i in range(9)], Model()

    class Slow(Model):
        def __call__(self, some: list[str], role: str, batch_size: int = 32) -> Vectors:
            with_model(other).embed(texts)
            return super().__call__(some, role, batch_size)

    slow = Slow()
    assert (with_model(slow).embed(texts) == Model()(texts, "")).all()
    assert len(slow.asked) == 1


def test_many_texts_find_their_own_vectors_in_the_cache(private_cache: Path) -> None:
    """More than one query to the database holds, in another order than they were written in."""
    texts = [f"text {i}" for i in range(1201)]
    with_model(Model()).embed(texts)
    model = Model()
    vectors = with_model(model).embed(texts[::-1])
    assert model.asked == []
    assert (vectors == Model()(texts[::-1], "")).all()


def test_every_setting_that_changes_vectors_has_a_cache_of_its_own(private_cache: Path) -> None:
    options = [
        {"max_tokens": tokens, "precision": precision}
        for tokens, precision in itertools.product((None, 16, 32), ("float32", "bfloat16"))
    ]
    made = [Surrogate(**option) for option in options]  # type: ignore[arg-type]
    assert len({one.fingerprint for one in made}) == 6
    models = [Model() for _ in options]
    for option, model in zip(options, models, strict=True):
        with_model(model, **option).embed(["a"])
    assert [model.asked for model in models] == [[["a"]]] * 6


def test_settings_that_only_change_the_speed_share_a_cache() -> None:
    assert (
        Surrogate(batch_size=1, device="cpu").fingerprint
        == Surrogate(batch_size=64, device="cpu").fingerprint
    )


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_a_model_that_is_exchanged_in_its_folder_has_another_cache(
    file: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(b"one")
    before = Surrogate(tmp_path).fingerprint
    (tmp_path / file).write_bytes(b"three")
    assert Surrogate(tmp_path).fingerprint != before


def test_a_model_of_the_hub_is_known_by_its_settings_as_well_as_its_weights(tmp_path: Path) -> None:
    """Two repositories may hold the same weights, and pool or prompt otherwise."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    folder = backbone_folder(tmp_path, "bert")
    fingerprints = []
    for pooling, prompt in (("mean", ""), ("cls", ""), ("mean", "query: "), ("mean", "")):
        modules = [Transformer(str(folder)), Pooling(32, pooling)]
        fetched = Surrogate("an/encoder")
        fetched.__dict__["sentence_model"] = SentenceTransformer(
            modules=modules, prompts={"query": prompt}, device="cpu"
        )
        fingerprints.append(fetched.fingerprint)
    assert len(set(fingerprints)) == 3 and fingerprints[0] == fingerprints[-1]


# --- errors


def test_nothing_is_computed_where_one_item_is_wrong(private_cache: Path) -> None:
    model = Model()
    with pytest.raises(TypeError, match="texts must be strings; item 1 is of type int"):
        with_model(model).embed(["good", 1])  # type: ignore[list-item]
    assert model.asked == []


@pytest.fixture
def unverified() -> Iterator[None]:
    """The folder of MiniLM is verified anew, here and after."""
    minilm_folder.cache_clear()
    yield
    minilm_folder.cache_clear()


def test_a_damaged_file_is_noticed(
    unverified: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of the weights differs."""
    folder = tmp_path / "package"
    shutil.copytree(minilm_folder(), folder / "model")
    with (folder / "model" / "model.safetensors").open("r+b") as file:
        file.seek(1_000_000)
        byte = file.read(1)[0]
        file.seek(1_000_000)
        file.write(bytes([byte ^ 1]))
    minilm_folder.cache_clear()
    origin = SimpleNamespace(origin=str(folder / "__init__.py"))
    monkeypatch.setattr(surrogate.importlib.util, "find_spec", lambda _: origin)
    with pytest.raises(ValueError, match="the file is damaged or of another version"):
        minilm_folder()


@pytest.mark.parametrize("name", ["owner/no-such-model", "./no/such/folder", "minilmm"])
def test_a_model_that_is_nowhere_is_named_with_what_is_accepted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match=f"no model '{name}'") as caught:
        Surrogate(name, cache=False).embed(["a"])
    message = str(caught.value)
    for way in ("'minilm' (offline)", "sentence-transformers folder", "Hub repository"):
        assert way in message


def test_a_hub_out_of_reach_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, asked_hosts: list[str]
) -> None:
    """The waits between attempts are added up, not waited: under five seconds in all."""
    waits: list[float] = []
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(ConnectionError, match="no model"):
        Surrogate("owner/no-such-model", cache=False).embed(["a"])
    assert sum(waits) < 5
    assert 1 <= len(asked_hosts) <= 4


def test_machines_that_share_a_disk_have_a_file_of_vectors_each(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's files are not for disks that may keep a machine's locks to itself."""
    paths = []
    for reach, machine in (("here", "a"), ("here", "b"), ("everywhere", "a"), ("own", "b")):
        monkeypatch.setattr(surrogate, "lock_reach", lambda _, reach=reach: reach)
        monkeypatch.setattr(surrogate.platform, "node", lambda machine=machine: machine)
        with surrogate.VectorStore("a model", 2) as one:
            one.write(["x"], np.array([[1.0, 2.0]], np.float32))
            assert one.read(["x"])["x"].tolist() == [1, 2]
        paths.append(one.path)
    assert paths[0] == paths[1] and len(set(paths)) == 3
