"""The Long Range Arena's recipes: each builds with the published sizes; one is trained and scored."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import dry_run
from examples.wmt14_runs import REPOSITORY, refusal, shell
from fairseq_luna.commands.preparing import settings as settings_of_data
from lra import listops
from lra.files import NUMBERS
from reader_data import classification_data
from recipes.model import build
from recipes.settings import command_settings, script_command

LRA = REPOSITORY / "examples" / "lra"
PAPER = OmegaConf.load(LRA / "paper.yaml")
# Layers, channels, feed-forward, heads; learning rate, batch, warm-up, updates; dropout, weight decay, classes, length.
PUBLISHED = {
    "listops": ((6, 512, 2048, 8), (1e-4, 32, 1000, 5000), (0.1, 1e-4, 10, 2000)),
    "text": ((4, 256, 1024, 4), (5e-5, 32, 8000, 20000), (0.3, 1e-4, 2, 4000)),
    "retrieval": ((4, 128, 512, 4), (5e-4, 32, 8000, 20000), (0.1, 1e-4, 2, 2 * 4000)),
    "image": ((1, 64, 128, 8), (5e-3, 256, 4000, 35000), (0.3, 0, 10, 1024)),
    "pathfinder": ((1, 128, 128, 4), (1e-3, 512, 4000, 62500), (0.2, 0, 2, 1024)),
}


@pytest.fixture
def data(tmp_path):
    return classification_data(tmp_path / "bin", inputs=1)


def settings(task, system, data, **environment):
    environment = {"DATA": data, "SAVE_DIR": f"{data}/run", **environment}
    return command_settings(script_command(LRA / "train.sh", environment, [task, system]))


def test_every_task_has_its_file_and_its_row_with_the_symbols_of_its_data():
    assert {path.stem for path in (LRA / "config").glob("*.yaml")} == PUBLISHED.keys() == set(PAPER.rows)
    assert PAPER.rows.listops.vocabulary - len(listops.SYMBOLS) == PAPER.vocabulary - len(NUMBERS) == 4


@pytest.mark.parametrize("task", PUBLISHED)
def test_the_published_setting_builds(task, data):
    cfg = settings(task, "transformer", data, SETTING="published")
    sizes, training, rest = PUBLISHED[task]
    model, optimization = cfg.model, cfg.optimization
    assert sizes == (
        *(model.encoder_layers, model.encoder_embed_dim, model.encoder_ffn_embed_dim),
        model.encoder_attention_heads,
    )
    schedule = cfg.lr_scheduler
    assert training == (
        *(optimization.lr[0], cfg.dataset.batch_size, schedule.warmup_updates),
        optimization.max_update,
    )
    # The tokens that begin and end a text.
    marks = 4 if task == "retrieval" else 2
    assert rest == (model.dropout, cfg.optimizer.weight_decay, cfg.task.num_classes, cfg.task.max_positions - marks)
    assert (cfg.optimizer.adam_betas, optimization.clip_norm) == ("(0.9,0.98)", 0)
    assert str(model.pooling) == ("mean" if task == "pathfinder" else "cls")
    assert model.attention_dropout == (0.3 if task == "text" else 0.1)
    assert (cfg.common.fp16, str(model.pooler_activation_fn)) == (True, "relu")
    build(cfg)
    luna = settings(task, "luna_16", data, SETTING="published").model
    assert (luna.untie_luna_kv, luna.projection_length) == (True, 16)
    assert not settings(task, "luna_16", data).model.untie_luna_kv


def test_a_dry_run_builds_every_system():
    recipes = {recipe.row.removeprefix("image "): recipe for recipe in dry_run.recipes(LRA, ["image"])}
    assert list(recipes) == list(PAPER.systems)
    for system, recipe in recipes.items():
        if system.startswith("luna_"):
            assert recipe.settings["model.projection_length"] == int(system.removeprefix("luna_"))
        else:
            assert recipe.settings["model.encoder.self_attention"] == system.replace("transformer", "softmax")
    # A slot is a vector.
    assert recipes["luna_128"].parameters - recipes["luna_16"].parameters == (128 - 16) * 64
    assert recipes["block"].tokens_per_update == 256 * 1026


def test_the_short_setting_is_one_for_all_tasks_and_the_default(data):
    cfgs = {task: settings(task, "fastformer", data, SEED="3") for task in PUBLISHED}
    for task, cfg in cfgs.items():
        model, optimization = cfg.model, cfg.optimization
        sizes = (
            model.encoder_layers,
            model.encoder_embed_dim,
            model.encoder_ffn_embed_dim,
            model.encoder_attention_heads,
        )
        assert sizes == (4, 128, 256, 4)
        assert (model.dropout, model.attention_dropout, str(model.pooling)) == (0.1, 0, "mean")
        assert model.share_encoder_layers == (task == "listops")
        assert (optimization.lr, optimization.max_update, cfg.common.seed) == ([5e-4], 4000, 3)
        # So many texts have more tokens.
        assert cfg.dataset.batch_size >= cfg.dataset.max_tokens == 16384
        assert cfg.task.max_positions == PUBLISHED[task][2][-1] + (4 if task == "retrieval" else 2)
    build(cfgs["listops"])


@pytest.mark.parametrize(
    ("script", "arguments", "environment", "said"),
    [
        ("train.sh", [], {}, "TASK is '': it must be one of image listops pathfinder retrieval text"),
        ("train.sh", ["chess", "luna_16"], {}, "TASK is 'chess'"),
        ("train.sh", ["listops"], {}, "give a SYSTEM"),
        ("train.sh", ["listops", "luna_16"], {"DATA": ""}, "set DATA to a bin folder that scripts/prepare_lra.py made"),
        ("train.sh", ["image", "luna_16"], {}, "TASK is image, but DATA={data} was made for listops"),
        ("train.sh", ["listops", "luna_16"], {"SETTING": "long"}, "SETTING is short or published, not 'long'"),
        ("score.sh", [], {}, "give a checkpoint"),
        ("score.sh", ["/nowhere.pt"], {}, "there is no checkpoint /nowhere.pt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_values_end_in_one_line(data, script, arguments, environment, said):
    settings_of_data.keep(Path(data).parent, {"task": "listops"})
    line = refusal(shell(LRA / script, *arguments, **{"DATA": data, **environment}))
    assert line.startswith(f"{script}: ")
    assert said.format(data=data) in line


@pytest.mark.slow
@pytest.mark.parametrize(("task", "inputs"), [("retrieval", 2), ("listops", 1)], ids=["a pair", "layers that are one"])
def test_from_training_to_accuracy(tmp_path, task, inputs):
    data = classification_data(tmp_path / "data", inputs=inputs)
    flags = ("--encoder-layers=2", "--encoder-embed-dim=16", "--encoder-attention-heads=2", "--num-classes=2", "--cpu")
    flags += ("--num-workers=0", "--data-buffer-size=0")
    for epoch in (1, 2):  # the second is resumed
        ended = shell(
            *(LRA / "train.sh", task, "luna_16", *flags, f"--max-epoch={epoch}"),
            **{"DATA": data, "SAVE_DIR": "run", "folder": tmp_path},
        )
        assert ended.returncode == 0, ended.stderr
    checkpoint = Path("run") / "checkpoint_best.pt"
    scored = shell(LRA / "score.sh", str(checkpoint), "--cpu", DATA=data, SUBSET="valid", folder=tmp_path)
    assert scored.returncode == 0, scored.stderr
    assert float(scored.stdout) in {round(100 * right / 6, 1) for right in range(7)}
