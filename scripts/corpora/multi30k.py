"""Multi30K task 1, English-German captions (Elliott et al. 2016): where its raw text is published."""

from corpora.catalogue import Part, Place, Remote, Source, Split

_CHECKSUMS = {
    "train.en": ("d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f", 568_929),
    "train.de": ("726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6", 637_044),
    "val.en": ("14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28", 21_650),
    "val.de": ("f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a", 24_681),
    "test_2016_flickr.en": ("611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9", 21_077),
    "test_2016_flickr.de": ("9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8", 22_890),
}


def _part(stem: str) -> Part:
    return Part(f"Multi30K {stem}", (Source(_place(f"{stem}.en"), _place(f"{stem}.de")),))


def _place(name: str) -> Place:
    digest, size = _CHECKSUMS[name]
    path = f"data/task1/raw/{name}.gz"
    urls = (
        f"https://raw.githubusercontent.com/multi30k/dataset/master/{path}",
        f"https://github.com/multi30k/dataset/raw/master/{path}",
    )
    return Place(Remote(urls, f"sha256:{digest}", size))


SPLITS = (
    Split("train", ("train",), (_part("train"),)),
    Split("valid", ("val", "valid"), (_part("val"),)),
    Split("test", ("test_2016_flickr", "test"), (_part("test_2016_flickr"),)),
)
