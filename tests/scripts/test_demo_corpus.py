"""The demo's corpus is the same bytes everywhere, in disjoint parts."""

import hashlib
from itertools import islice

import demo_corpus


def test_the_files_are_the_same_everywhere_and_no_english_sentence_is_repeated(tmp_path):
    demo_corpus.write(tmp_path)
    digest = hashlib.sha256()
    for file in sorted(tmp_path.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    # Of right German: declension, conjugation and numbers were tested form by form when this was recorded.
    assert digest.hexdigest() == "fbb9990a5aeb699794070164cd7291414d65a6f61ca7ec1b511525934800f32c"
    parts = {name: (tmp_path / f"{name}.en").read_text().splitlines() for name in demo_corpus.SIZES}
    assert {name: len(lines) for name, lines in parts.items()} == demo_corpus.SIZES
    assert len({line for part in parts.values() for line in part}) == sum(demo_corpus.SIZES.values())


def test_another_seed_is_another_corpus():
    one, other = (list(islice(demo_corpus.sentences(seed), 20)) for seed in (1, 2))
    assert not set(one) & set(other)
