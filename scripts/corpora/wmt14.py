"""WMT14 English-German: where its texts are published.

Sizes and checksums: sha256 of the training texts from TensorFlow Datasets, Europarl's sha1 from GluonNLP, md5 of the
test sets from sacreBLEU.
"""

from corpora.catalogue import Part, Place, Remote, Source, Split


def _statmt(path: str, checksum: str, size: int | None = None) -> Remote:
    return Remote((f"https://www.statmt.org/{path}", f"http://www.statmt.org/{path}"), checksum, size)


def _archive(remote: Remote, english: str, german: str) -> Source:
    return Source(Place(remote, english), Place(remote, german))


_EUROPARL = Part(
    "Europarl v7",
    (
        _archive(
            _statmt("europarl/v7/de-en.tgz", "sha1:53bb5408d22977c89284bd755717e6bbb5b12bc5", 197_785_698),
            "europarl-v7.de-en.en",
            "europarl-v7.de-en.de",
        ),
        # The same text among other languages.
        _archive(
            _statmt(
                "wmt13/training-parallel-europarl-v7.tgz",
                "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
                657_632_379,
            ),
            "training/europarl-v7.de-en.en",
            "training/europarl-v7.de-en.de",
        ),
    ),
)
_COMMON_CRAWL = Part(
    "Common Crawl",
    (
        _archive(
            _statmt(
                "wmt13/training-parallel-commoncrawl.tgz",
                "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
                918_311_367,
            ),
            "commoncrawl.de-en.en",
            "commoncrawl.de-en.de",
        ),
    ),
)
_NEWS_COMMENTARY = Part(
    "News Commentary v9",
    (
        _archive(
            _statmt(
                "wmt14/training-parallel-nc-v9.tgz",
                "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
                80_418_416,
            ),
            "training/news-commentary-v9.de-en.en",
            "training/news-commentary-v9.de-en.de",
        ),
    ),
)
_NEWSTEST2013 = Part(
    "newstest2013",
    (
        _archive(
            _statmt("wmt13/test.tgz", "md5:48eca5d02f637af44e85186847141f67"),
            "test/newstest2013-src.en.sgm",
            "test/newstest2013-src.de.sgm",
        ),
        _archive(
            _statmt("wmt14/dev.tgz", "sha256:cda0f85309e8ea4c9c2bc142cd795fb2771a5939ed5b4527b525dae05fa0c145"),
            "dev/newstest2013.en",
            "dev/newstest2013.de",
        ),
    ),
)
_NEWSTEST2014 = Part(
    "newstest2014",
    (
        _archive(
            _statmt("wmt14/test-full.tgz", "md5:a8cd784e006feb32ac6f3d9ec7eb389a"),
            "test-full/newstest2014-deen-src.en.sgm",
            "test-full/newstest2014-deen-ref.de.sgm",
        ),
    ),
)

SPLITS = (
    Split("train", ("train",), (_EUROPARL, _COMMON_CRAWL, _NEWS_COMMENTARY)),
    Split("valid", ("valid", "dev", "newstest2013"), (_NEWSTEST2013,), sentences=3000),
    Split(
        "test",
        ("test", "newstest2014"),
        (_NEWSTEST2014,),
        sentences=3003,
        hint=(2737, "this is the filtered newstest2014, whose scores differ: use the one in test-full.tgz"),
    ),
)
