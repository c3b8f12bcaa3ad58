"""The collection `manuals`: what is read, what is left out, and that kin are on one side."""

import gzip
import io
import json
from pathlib import Path

import pandas as pd
import pytest

import cde
from cde.data.sources import is_available
from cde.provenance import account
from cde.storage import write_sealed
from cde_book.contents import known_fingerprints
from cde_studies.collections import installed, manuals

TEN = "it has as many words as a description needs here"


@pytest.fixture(scope="module")
def kept() -> pd.DataFrame:
    table = manuals.table()
    return table[table["repeats"] == ""]


def test_a_name_falls_into_words_and_a_description_into_sentence_and_rest() -> None:
    assert manuals.words_of("CreateQueueRequest.QueueName") == "create queue request queue name"
    sentence, rest = "Deletes a queue.", "All messages in it are lost and nobody can read them."
    assert manuals.split_sentence(f"{sentence} {rest}") == (sentence, rest)
    assert manuals.split_sentence(f"Deletes. {rest}") is None
    example = "Deletes a queue, e.g. Amazon's own one."
    assert manuals.split_sentence(f"{example} {rest}") == (example, rest)


def test_no_family_is_on_two_sides(kept: pd.DataFrame) -> None:
    assert len(kept[["family", "part"]].drop_duplicates()) == len(kept["family"].unique())


def test_sister_services_are_of_one_family(kept: pd.DataFrame) -> None:
    family = kept.drop_duplicates("corpus").set_index("corpus")["family"]
    sisters = "waf wafv2 waf-regional", "es opensearch", "elb elbv2", "ses sesv2 pinpoint-email"
    for kin in sisters:
        assert len({family[f"aws/{name}"] for name in kin.split()}) == 1, kin


@pytest.mark.parametrize("part", ["validation", "test"])
def test_sixty_corpora_with_two_hundred_pairs_are_held_out(part: manuals.Part) -> None:
    names = manuals.corpora(part)
    assert len(names) == 60
    assert not set(names) & set(manuals.corpora("train", least=1))
    pairs = cde.load_pairs("manuals", part)  # type: ignore[arg-type]
    assert pd.Series(pairs.domains).value_counts()[names].min() >= 200


def test_training_shares_no_longer_text_with_test_but_boilerplate() -> None:
    """What both share stands in more than three corpora, or is less than a tenth of both."""
    train, test = (cde.load_pairs("manuals", part) for part in ("train", "test"))
    seen = {text.casefold() for text in train.documents}
    shared = (
        pd.Series([text.casefold() in seen for text in test.documents])
        .groupby(list(test.domains))
        .mean()
    )
    assert shared[manuals.corpora("test")].mean() < 0.1


def test_within_a_corpus_documents_and_names_differ(kept: pd.DataFrame) -> None:
    folded = kept.assign(document=kept["document"].str.casefold())
    assert not folded.duplicated(["corpus", "document"]).any()
    assert not kept.duplicated(["corpus", "query"]).any()
    assert kept["id"].is_unique


def test_descriptions_are_plain_text_of_ten_words(kept: pd.DataFrame) -> None:
    assert kept["document"].str.split().str.len().min() >= 10
    assert not kept["document"].str.contains(r"</p>|<code>|&quot;|\s\s", regex=True).any()


def test_sentence_and_rest_make_the_description(kept: pd.DataFrame) -> None:
    whole = dict(zip(kept["id"], kept["document"], strict=True))
    pairs = cde.load_pairs("manuals-sentences/google/drive")
    for sentence, rest, name in zip(pairs.queries, pairs.documents, pairs.ids, strict=True):
        assert whole[name] == f"{sentence} {rest}"


def test_the_lock_s_packages_give_the_same_text_everywhere() -> None:
    from importlib.metadata import version

    if (version("botocore"), version("google-api-python-client")) != ("1.44.8", "2.202.0"):
        pytest.skip("other versions than the lock's")
    assert cde.load_pairs("manuals").fingerprint == "011aca906775e8bd"
    assert cde.load_pairs("manuals", "test").fingerprint == "ec65749aef4df882"


def test_both_vendors_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions of a service are one corpus, the newest first; a repeated text is left out."""
    for version, text in {"2012-01-01": "old", "2020-01-01": "new"}.items():
        folder = tmp_path / "botocore" / "data" / "tea" / version
        folder.mkdir(parents=True)
        described = {"documentation": f"<p>The {text} <code>pot</code>: {TEN}.</p>"}
        manual = {
            "operations": {"BrewTea": {}},
            "shapes": {"Pot": {"members": {"MaxCups": described}}},
        }
        (folder / "service-2.json.gz").write_bytes(gzip.compress(json.dumps(manual).encode()))
    documents = tmp_path / "googleapiclient" / "discovery_cache" / "documents"
    documents.mkdir(parents=True)
    method = {"description": f"Lists [teas](https://tea.example): {TEN}."}
    inner = {"resources": {"teas": {"methods": {"list": method}}}}
    item = {
        "type": "array",
        "items": {"properties": {"leafSize": {"description": f"Size: {TEN}."}}},
    }
    for version in ("v1", "v2beta"):
        schemas = {f"Leaf{version}": {"properties": {"leaves": item}}}
        (documents / f"shop.{version}.json").write_text(
            json.dumps({"resources": {"shops": inner}, "schemas": schemas})
        )
    (documents / "index.json").write_text("{}")
    monkeypatch.setattr(manuals, "package_folder", lambda package: tmp_path / package)
    table = manuals._extract()
    rows = table[["corpus", "query", "document", "repeats"]].to_numpy().tolist()
    assert rows == [
        ["aws/tea", "pot max cups", f"The new pot: {TEN}.", ""],
        ["aws/tea", "pot max cups", f"The old pot: {TEN}.", "name"],
        ["google/shop", "shops teas list", f"Lists teas: {TEN}.", ""],
        ["google/shop", "leafv1 leaves leaf size", f"Size: {TEN}.", ""],
        ["google/shop", "shops teas list", f"Lists teas: {TEN}.", "text"],
        ["google/shop", "leafv2beta leaves leaf size", f"Size: {TEN}.", "text"],
    ]


def test_of_all_manuals_that_are_loaded_the_account_has_one_entry() -> None:
    """Hundreds of names in a record would each be loaded to see whether its data are here."""
    before = dict(account.loaded)
    account.loaded.clear()
    cde.load_pairs("manuals/aws/sqs")
    cde.load_retrieval("manuals/google/drive")
    found = dict(account.loaded)
    account.loaded.update(before)
    assert found == {"manuals": manuals.fingerprint()}
    assert known_fingerprints("manuals") == {manuals.fingerprint()}


def carried(folder: Path, text: str) -> None:
    """A table of two manuals, made elsewhere."""
    rows = [
        ("aws/tea", "aws/tea/Pot", "pot", f"{text} of the pot", "", 0, "train"),
        ("aws/tea", "aws/tea/Cup", "cup", f"{text} of the cup", "", 0, "train"),
        ("aws/tea", "aws/tea/Mug", "cup", "again", "name", 0, "train"),
        ("aws/ink", "aws/ink/Pen", "pen", f"{text} of the pen", "", 1, "test"),
    ]
    columns = ["corpus", "id", "query", "document", "repeats", "family", "part"]
    frame = pd.DataFrame(rows, columns=columns)
    frame.attrs["fingerprint"] = text
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    write_sealed(folder / "manuals.parquet.sealed", buffer.getvalue())


def test_a_table_that_was_made_elsewhere_stands_for_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that is lent, which has neither package."""
    monkeypatch.setenv("CDE_DATA", str(tmp_path))
    monkeypatch.setattr(manuals, "PACKAGES", {"nopackage": "no-such-distribution"})
    monkeypatch.setattr(manuals, "package_folder", {}.__getitem__)
    keys, loaded = [], []
    for text in ("old", "new"):
        carried(tmp_path, text)
        manuals._by_corpus.cache_clear()
        installed.kept_table.cache_clear()
        keys.append(manuals.source_key())
        pairs = cde.load_pairs("manuals", split="all")
        loaded.append((pairs.queries, pairs.documents, manuals.fingerprint()))
    manuals._by_corpus.cache_clear()
    installed.kept_table.cache_clear()
    assert manuals.is_installed() and is_available("manuals")
    assert [one[0] for one in loaded] == [["pot", "cup", "pen"]] * 2
    assert loaded[1][1:] == (["new of the pot", "new of the cup", "new of the pen"], "new")
    assert keys[0] != keys[1], "another table is other data"


def test_a_damaged_table_of_one_s_own_is_refused_and_left_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages that are installed here may have other texts."""
    monkeypatch.setenv("CDE_DATA", str(tmp_path))
    carried(tmp_path, "text")
    path = tmp_path / "manuals.parquet.sealed"
    whole = path.read_bytes()
    installed.kept_table.cache_clear()
    manuals._by_corpus.cache_clear()
    for content in (b"", b"text", whole[:-1], whole.replace(b"\n", b" ", 1)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged, or is not a table that cde has made"):
            cde.load_pairs("manuals")
        assert path.read_bytes() == content and [*tmp_path.iterdir()] == [path]
    write_sealed(path, b"no parquet")
    with pytest.raises(ValueError, match="is damaged, or is not a table"):
        cde.load_pairs("manuals")
