"""An output folder has one set of settings."""

import pytest

from fairseq_luna.commands.preparing.provenance import FILE, check_provenance, named_fingerprint, record_provenance
from fairseq_luna.usage_error import UsageError


@pytest.mark.parametrize("made", ["codes", "work/sentencepiece"])
def test_another_size_is_accepted_until_there_are_pieces(tmp_path, made):
    record_provenance(tmp_path, {"size": 8})
    check_provenance(tmp_path, {"size": 9})
    (tmp_path / made).mkdir(parents=True)
    with pytest.raises(UsageError, match="was made with size 8, not 9"):
        check_provenance(tmp_path, {"size": 9})


def test_files_are_told_apart_by_content_and_order(tmp_path):
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("one\n")
    target.write_text("ein\n")
    begun = {"files": {"train": [[named_fingerprint(source), named_fingerprint(target)]]}}
    record_provenance(tmp_path / "out", begun)
    check_provenance(tmp_path / "out", begun)
    with pytest.raises(UsageError, match=r"files \(train, 1, 1\) a.en of 4 bytes .*, not a.de of 4 bytes and SHA-256"):
        check_provenance(
            tmp_path / "out", {"files": {"train": [[named_fingerprint(target), named_fingerprint(source)]]}}
        )
    target.write_text("two\n")
    with pytest.raises(UsageError, match=r"files \(train, 1, 2\) a.de of 4 bytes .*, not a.de of 4 bytes and SHA-256"):
        check_provenance(
            tmp_path / "out", {"files": {"train": [[named_fingerprint(source), named_fingerprint(target)]]}}
        )
    with pytest.raises(UsageError, match=r"files \(train\) \[\[.*, not \[\]"):
        check_provenance(tmp_path / "out", {"files": {"train": []}})


def test_a_folder_is_known_by_the_names_and_contents_of_its_files(tmp_path):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in files:
        path.write_text(path.stem)
    whole = named_fingerprint(tmp_path, files)
    assert (whole["name"], whole["bytes"]) == (tmp_path.name, 2)
    assert named_fingerprint(tmp_path, files[::-1]) != whole
    files[0].rename(tmp_path / "c.txt")
    assert named_fingerprint(tmp_path, [tmp_path / "c.txt", files[1]]) != whole


@pytest.mark.parametrize("made", ["joint.model", "work/raw", "bin", "data-bin"])
def test_what_was_made_without_a_record_is_refused(tmp_path, made):
    (tmp_path / made).mkdir(parents=True)
    with pytest.raises(UsageError, match=f"--out {tmp_path} has no {FILE}, .*: use another --out"):
        check_provenance(tmp_path, {"size": 8})


@pytest.mark.parametrize("content", ["{", "[1]", "null", '{"editor.fontSize": 12}'])
def test_another_programs_file_is_not_overwritten(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    for record in (check_provenance, record_provenance):
        with pytest.raises(UsageError, match=f"{FILE}: unreadable|was made with|another program"):
            record(tmp_path, {"--hold-out": 8})
    assert (tmp_path / FILE).read_text() == content
