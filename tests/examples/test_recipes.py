"""Every recipe composes and builds; the rows of the Luna paper and of docs/results.md have the flags that they had."""

import re

import pytest

from recipes import CONFIG, ROOT, build, composed, count_parameters, of_flags, settings, write_dictionaries

# hydra announces future strictness for every config.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

TRANSLATIONS = {"multi30k", "documents", "summarization", "wmt14", "wmt14_transformer"}
SYSTEMS = ("transformer", "luna", "fastformer", "block", "mixed")
TASKS = ("listops", "text", "retrieval", "image", "pathfinder")
DICTIONARIES = ("dict.en.txt", "dict.de.txt", "dict.source.txt", "dict.target.txt")
DICTIONARIES += ("dict.txt", "input0/dict.txt", "input1/dict.txt", "label/dict.txt")
SMALL = ("model.encoder_layers=1", "model.encoder_embed_dim=48", "model.encoder_ffn_embed_dim=48")


@pytest.fixture
def data(tmp_path):
    """The dictionaries of a data-bin, and the file that names its languages; users' paths have such characters."""
    folder = tmp_path / 'Läufe und mehr, it\'s = [my "own"]'
    write_dictionaries(folder, 40, *DICTIONARIES)
    (folder / "train.en-de.en.idx").touch()
    return folder


def choices():
    """Every recipe with every choice of its groups."""
    for name in sorted(TRANSLATIONS - {"wmt14_transformer"}):
        yield from ((name, f"system={system}") for system in SYSTEMS if (name, system) != ("wmt14", "transformer"))
    yield from (("multi30k", f"system={system}", "with=apollo") for system in SYSTEMS)
    yield from (("wmt14_transformer", f"with=wmt14_{optimizer}") for optimizer in ("adam", "apollo"))
    for name in ("imdb", "masked_lm", "glue", "glue_masked_lm"):
        yield from ((name, f"reader={reader}") for reader in ("luna", "mixed"))
    yield ("imdb", "reader=block_pyramid", "~model.pooling")
    for task in TASKS:
        yield from (("lra", f"lra={task}", f"setting={setting}") for setting in ("short", "published"))
    yield ("lra", "reader=mixed", "model.encoder_self_attention=local")


@pytest.mark.parametrize("chosen", choices(), ids=" ".join)
def test_every_recipe_composes_and_builds(chosen, data):
    name, *overrides = chosen
    cfg = composed(name, data, *overrides, *(() if name in TRANSLATIONS else SMALL))
    assert cfg.task.data == str(data)
    assert cfg.checkpoint.save_dir.startswith("checkpoints/")
    model, schedule = build(cfg)
    assert count_parameters(model) > 0
    assert schedule.step_update(cfg.lr_scheduler.warmup_updates) == pytest.approx(cfg.optimization.lr[0])


def test_every_file_is_chosen_by_a_recipe():
    chosen = {choice.replace("=", "/") for each in choices() for choice in each}
    bases = {f"base/{name}" for name in ("translation", "classification", "language_model", "wmt14")}
    files = {str(path.relative_to(CONFIG).with_suffix("")) for path in CONFIG.rglob("*.yaml")}
    assert files - chosen == {"run/here", "with/adam", *bases}


def check_same(ours, flags, data):
    """All that determines a training is equal, but for where the checkpoints go; returns our model."""
    model, theirs = build(ours)[0], of_flags(data, *flags)
    found, expected = settings(ours, model), settings(theirs, build(theirs)[0])
    for part in (found, expected):
        del part["checkpoint.save_dir"]
    assert len(expected) > 200
    assert found == expected
    return model


def row_of(page, first):
    """The other cells of the first row of a page's tables whose first cell is ``first``."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|"))
    return next(cells[1:] for cells in rows if cells[0] == first)


def overrides_of(cell):
    return [word for quoted in re.findall("`([^`]*)`", cell) for word in quoted.split()]


ADAM = ("--optimizer=adam", "--adam-betas=(0.9,0.98)")
SMOOTHED = ("--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--seed=1", "--log-format=json")
CAPTIONS = (
    *(*SMOOTHED, "--lr-scheduler=inverse_sqrt", "--share-all-embeddings", "--log-interval=50", "--max-tokens=4096"),
    *("--max-update=3000", "--keep-last-epochs=10", "--eval-bleu", "--eval-bleu-remove-bpe=sentencepiece"),
    '--eval-bleu-args={"beam": 1, "max_len_a": 1.2, "max_len_b": 10}',
)
PUBLISHED = (*CAPTIONS, *ADAM, "--lr=0.005", "--warmup-updates=2000", "--dropout=0.3")
BEST = (*PUBLISHED, "--warmup-updates=1000", "--dropout=0.1")
TRANSFORMER = ("--arch=transformer", "--encoder-layers=4", "--decoder-layers=4", "--encoder-attention-heads=4")
TRANSFORMER += ("--decoder-attention-heads=4", "--encoder-embed-dim=128", "--decoder-embed-dim=128")
TRANSFORMER += ("--encoder-ffn-embed-dim=256", "--decoder-ffn-embed-dim=256")
PRENORM = ("--encoder-normalize-before", "--decoder-normalize-before")
SOFTMAX_SOURCE = ("--arch=luna_tiny", "--untie-luna-kv", "--luna-source-attention=softmax")
MIXED = ("--arch=mixed_tiny", "--attention-kernel-size=5")
BOTH_SIDES = ("--encoder-self-attention={0}", "--decoder-self-attention={0}")
# The systems of docs/results.md, with the flags of their trainings.
RESULTS = {
    "transformer, fairseq's": TRANSFORMER,
    "Fastformer": ("--arch=fastformer_tiny",),
    "Fastformer, pre-norm": ("--arch=fastformer_tiny", *PRENORM),
    "Luna, softmax cross-attention": SOFTMAX_SOURCE,
    "softmax attention everywhere": MIXED,
    "block attention": ("--arch=block_tiny", "--attention-kernel-size=5"),
    "flash": (*MIXED, *(flag.format("flash") for flag in BOTH_SIDES), "--attention-chunk=32"),
    "linear": (*MIXED, *(flag.format("linear") for flag in BOTH_SIDES)),
    "nystrom": (*MIXED, "--encoder-self-attention=nystrom", "--decoder-self-attention=linear"),
    "Fastformer, convolution": ("--arch=fastformer_tiny", "--attention-kernel-size=5"),
    "Luna, softmax cross-attention, convolution": (*SOFTMAX_SOURCE, "--attention-kernel-size=5"),
    "Luna, packed cross-attention, convolution": (
        *("--arch=luna_tiny", "--untie-luna-kv", "--attention-kernel-size=5"),
    ),
}


@pytest.mark.parametrize("row", RESULTS)
def test_the_rows_of_the_results_have_the_flags_of_their_trainings(row, data):
    overrides = overrides_of(row_of("docs/results.md", row)[0])
    ours = composed("multi30k", data, "model.dropout=0.1", "lr_scheduler.warmup_updates=1000", *overrides)
    check_same(ours, (*BEST, *RESULTS[row]), data)


def test_apollos_recipe_and_the_published_setting(data):
    apollo = ("--optimizer=apollo", "--lr=0.2", "--warmup-updates=500", "--clip-norm=1.0", "--dropout=0.3")
    ours = composed("multi30k", data, "system=block", "with=apollo")
    check_same(ours, (*CAPTIONS, *apollo, *PRENORM, "--arch=block_tiny"), data)
    published = ("optimization.max_update=8000", "optimization.update_freq=[2]", "checkpoint.patience=10")
    flags = ("--arch=luna_tiny", "--max-update=8000", "--update-freq=2", "--patience=10")
    check_same(composed("multi30k", data, *published), (*PUBLISHED, *flags), data)


# The Luna paper (arXiv 2106.01540) and its authors' published commands.
WMT14 = (
    *(*SMOOTHED, "--source-lang=en", "--target-lang=de", "--share-all-embeddings", "--log-interval=100"),
    *("--dropout=0.1", "--attention-dropout=0.1", "--activation-dropout=0.1", "--clip-norm=1.0"),
    *("--distributed-world-size=8", "--max-tokens=8192", "--max-update=500000"),
)
OF_APOLLO = (
    *("--optimizer=apollo", "--lr=0.1", "--apollo-beta=0.9", "--apollo-eps=1e-4", "--apollo-rebound=constant"),
    *("--weight-decay=1e-8", "--weight-decay-type=L2", "--lr-scheduler=milestone", "--lr-decay-rate=0.1"),
    *("--warmup-updates=1000", "--warmup-init-lr=1e-5", "--apollo-clip-mode=total"),
)
OF_LUNA = (*WMT14, *OF_APOLLO, "--milestones=300000,450000", "--batch-size=1024", "--keep-last-epochs=5")
OF_TRANSFORMER = (*WMT14, "--arch=transformer_wmt_en_de", "--keep-last-epochs=10", "--ddp-backend=legacy_ddp")
OF_ADAM = (*ADAM, "--lr=5e-4", "--weight-decay=1e-4", "--lr-scheduler=inverse_sqrt", "--warmup-updates=4000")
ROWS = {
    "transformer_base_adam": (*OF_TRANSFORMER, *OF_ADAM, "--warmup-init-lr=1e-7"),
    "transformer_base_apollo": (*OF_TRANSFORMER, *OF_APOLLO, "--milestones=250000,450000"),
    **{
        f"luna_{slots}_{activation}_{tied}": (
            *(*OF_LUNA, "--arch=luna_base", f"--projection-length={slots}", f"--luna-activation={activation}"),
            *(["--untie-luna-kv"] if tied == "untied" else []),
        )
        for slots in (16, 32)
        for activation in ("elu", "softplus")
        for tied in ("tied", "untied")
    },
    "luna_big": (*OF_LUNA, "--arch=luna_big", "--dropout=0.3"),
    "fastformer_base": (*OF_LUNA, "--arch=fastformer_base"),
    "block_base": (*OF_LUNA, "--arch=block_base"),
}
VOCABULARY = 40624  # joint; inferred from the paper's parameters


@pytest.mark.parametrize("row", ROWS)
def test_the_rows_of_the_papers_table_equal_its_flags(row, tmp_path):
    write_dictionaries(tmp_path, VOCABULARY, "dict.en.txt", "dict.de.txt")
    chosen, counted, paper, _ = row_of("examples/wmt14_en_de/README.md", f"`{row}`")
    name = "wmt14_transformer" if row.startswith("transformer") else "wmt14"
    cfg = composed(name, tmp_path, *overrides_of(chosen))
    parameters = count_parameters(check_same(cfg, ROWS[row], tmp_path)) / 1e6
    assert counted == f"{parameters:.2f}M"
    assert not paper or abs(parameters - float(paper.removesuffix("M"))) < 0.1
    (batches,) = cfg.optimization.update_freq
    assert cfg.distributed_training.distributed_world_size * cfg.dataset.max_tokens * batches == 65536


# Layers, channels, feed-forward, heads; learning rate, batch, warm-up, updates; dropout, weight decay, classes, length.
ARENA = {
    "listops": ((6, 512, 2048, 8), (1e-4, 32, 1000, 5000), (0.1, 1e-4, 10, 2002)),
    "text": ((4, 256, 1024, 4), (5e-5, 32, 8000, 20000), (0.3, 1e-4, 2, 4002)),
    "retrieval": ((4, 128, 512, 4), (5e-4, 32, 8000, 20000), (0.1, 1e-4, 2, 2 * 4002)),
    "image": ((1, 64, 128, 8), (5e-3, 256, 4000, 35000), (0.3, 0, 10, 1026)),
    "pathfinder": ((1, 128, 128, 4), (1e-3, 512, 4000, 62500), (0.2, 0, 2, 1026)),
}


@pytest.mark.parametrize("task", ARENA)
def test_the_long_range_arena_in_the_papers_setting(task, data):
    cfg = composed("lra", data, f"lra={task}", "setting=published")
    model, rate = cfg.model, cfg.optimization.lr[0]
    sizes = (model.encoder_layers, model.encoder_embed_dim, model.encoder_ffn_embed_dim, model.encoder_attention_heads)
    training = (rate, cfg.dataset.batch_size, cfg.lr_scheduler.warmup_updates, cfg.optimization.max_update)
    rest = (model.dropout, cfg.optimizer.weight_decay, cfg.task.num_classes, model.max_positions)
    assert (sizes, training, rest) == ARENA[task]
    assert (cfg.optimizer.adam_betas, cfg.optimization.clip_norm, cfg.common.fp16) == ("(0.9,0.98)", 0, True)
    assert (model.pooling, model.pooler_activation_fn) == ("mean" if task == "pathfinder" else "cls", "relu")
    short = composed("lra", data, f"lra={task}", "setting=short")
    assert (short.model.encoder_layers, short.model.encoder_embed_dim, short.model.pooling) == (4, 128, "mean")
    assert short.model.get("share_encoder_layers", False) == (task == "listops")
    assert (short.optimization.lr, short.optimization.max_update, short.dataset.max_tokens) == ([5e-4], 4000, 16384)
    assert short.task.max_positions == ARENA[task][2][-1]
