"""The account that a page and a record give of the code that made them."""

import subprocess
from pathlib import Path

from cde.provenance import commit


def test_a_new_record_is_no_change_of_the_code(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *words], cwd=tmp_path)

    code, records = tmp_path / "code.py", tmp_path / "book" / "records"
    records.mkdir(parents=True)
    code.write_text("1", encoding="utf-8")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "code")
    assert not commit(tmp_path)[1]
    (records / "one.json").write_text("{}", encoding="utf-8")
    assert commit(tmp_path)[1] and not commit(tmp_path, apart_from="book/records")[1]
    code.write_text("2", encoding="utf-8")
    assert commit(tmp_path, apart_from="book/records")[1]
