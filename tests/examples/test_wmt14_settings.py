"""Every WMT14 row gives the paper's model and training, from train.sh and from fairseq-hydra-train."""

import logging
import re

import pytest
from fairseq.optim import lr_scheduler
from fairseq_cli import hydra_train
from omegaconf import OmegaConf

import dry_run
import yaml_flags
from examples.wmt14_runs import ROWS, TRAIN
from fairseq_luna.usage_error import UsageError
from recipes.model import build, plain_settings, write_dictionaries
from recipes.settings import USER_DIR, command_settings, parsed, script_command

# hydra announces future strictness for every config.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

PAPER = OmegaConf.load(ROWS / "paper.yaml")
IN_THE_TABLE = [row for row in PAPER.rows if PAPER.rows[row]]


def yaml_settings(row, *overrides):
    """The config that fairseq-hydra-train composes."""
    arguments = (f"--config-dir={ROWS / 'config'}", f"--config-name={row}", f"common.user_dir='{USER_DIR}'", *overrides)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return parsed(hydra_train.cli_main, ("fairseq-hydra-train", *arguments))
    finally:  # hydra configures the root logger
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(scope="module")
def recipes():
    return {recipe.row: recipe for recipe in dry_run.recipes(ROWS)}


def test_every_file_is_a_row_and_every_row_has_its_file():
    assert {path.stem for path in (ROWS / "config").glob("*.yaml")} == set(PAPER.rows)


@pytest.mark.parametrize("row", PAPER.rows)
def test_the_readme_has_the_papers_and_the_counted_numbers(recipes, row):
    (line,) = re.findall(rf"^\| `{row}` .*$", (ROWS / "README.md").read_text(), flags=re.M)
    counted, paper, bleu = [cell.strip() for cell in line.split("|")][4:7]
    assert counted == f"{recipes[row].parameters / 1e6:.2f}M"
    figures = PAPER.rows[row]
    assert (paper, bleu) == ((f"{figures.parameters}M", str(figures.bleu)) if figures else ("", ""))


@pytest.mark.parametrize("row", PAPER.rows)
def test_hydra_composes_the_same_settings(recipes, row, tmp_path):
    write_dictionaries(tmp_path, PAPER.vocabulary, PAPER.dictionaries)
    cfg = yaml_settings(row, f"task.data={tmp_path}")
    hydra, script = plain_settings(cfg, build(cfg).model), dict(recipes[row].settings)
    assert len(script) > 200
    for settings in (hydra, script):
        # The temporary folder of the data, and the log, which train.sh keeps beside its checkpoints.
        del settings["common.log_file"], settings["task.data"]
    assert hydra == script


@pytest.mark.parametrize("row", IN_THE_TABLE)
def test_parameters_are_the_papers(recipes, row):
    assert recipes[row].difference == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("row", [row for row in PAPER.rows if re.match(r"luna_\d", row)])
def test_a_luna_row_is_trained_as_its_name_says(recipes, row):
    _, length, activation, tied = row.split("_")
    settings = recipes[row].settings
    assert settings["model.projection_length"] == int(length)
    assert settings["model.luna_activation"] == activation
    assert settings["model.untie_luna_kv"] == (tied == "untied")
    assert settings["model.encoder.projected_attention_heads"] == 8


@pytest.mark.parametrize("row", PAPER.rows)
def test_the_papers_settings_of_all_rows(recipes, row):
    assert recipes[row].tokens_per_update == 8 * 8192
    expected = {
        "criterion.label_smoothing": 0.1,
        "optimization.max_update": 500000,
        "optimization.clip_norm": 1.0,
        "model.dropout": 0.3 if row == "luna_big" else 0.1,
        "optimizer._name": "adam" if row.endswith("adam") else "apollo",
        "dataset.batch_size": None if row.startswith("transformer") else 1024,
        "checkpoint.keep_last_epochs": 10 if row.startswith("transformer") else 5,
    }
    assert {name: recipes[row].settings[name] for name in expected} == expected


def test_apollos_rates(tmp_path):
    cfg, built = built_row("luna_16_elu_tied", tmp_path)
    optimizer = cfg.optimizer
    assert (optimizer.apollo_beta, optimizer.apollo_eps, optimizer.apollo_rebound) == (0.9, 1e-4, "constant")
    assert (optimizer.weight_decay, optimizer.weight_decay_type) == (1e-8, "L2")
    rates = {update: built.schedule.step_update(update) for update in (0, 500, 1000, 299999, 300000, 450000, 500000)}
    assert rates == pytest.approx(
        {0: 1e-5, 500: 0.050005, 1000: 0.1, 299999: 0.1, 300000: 0.01, 450000: 0.001, 500000: 0.001}
    )
    _, built = built_row("transformer_base_apollo", tmp_path)
    rates = [built.schedule.step_update(update) for update in (249999, 250000, 449999, 450000)]
    assert rates == pytest.approx([0.1, 0.01, 0.01, 0.001])


def test_adams_rates(tmp_path):
    cfg, built = built_row("transformer_base_adam", tmp_path)
    assert built.optimizer.optimizer_config["betas"] == (0.9, 0.98)
    assert cfg.optimizer.weight_decay == 1e-4
    assert isinstance(built.schedule, lr_scheduler.LR_SCHEDULER_REGISTRY["inverse_sqrt"])
    rates = [built.schedule.step_update(update) for update in (4000, 16000)]
    assert rates == pytest.approx([5e-4, 2.5e-4])


def built_row(row, folder, flags=(), **environment):
    write_dictionaries(folder, 100, PAPER.dictionaries)
    cfg = command_settings(script_command(TRAIN, {"DATA": str(folder), "GPUS": "8", **environment}, [row, *flags]))
    return cfg, build(cfg)


def test_the_authors_clipping_is_an_option(tmp_path):
    flags = ("--apollo-clip-mode", "each", "--clip-norm", "0.1")
    cfg, built = built_row("luna_32_softplus_untied", tmp_path, flags)
    assert built.optimizer.clips_each
    assert cfg.optimization.clip_norm == 0.1

    overrides = ("optimizer.apollo_clip_mode=each", "optimization.clip_norm=0.1", f"task.data={tmp_path}")
    cfg = yaml_settings("luna_32_softplus_untied", *overrides)
    assert build(cfg).optimizer.clips_each


@pytest.mark.parametrize(
    ("gpus", "max_tokens", "update_freq"), [(1, 8192, 8), (2, 8192, 4), (8, 8192, 1), (4, 4096, 4)]
)
def test_an_update_has_as_many_tokens_on_any_number_of_gpus(tmp_path, gpus, max_tokens, update_freq):
    cfg, _ = built_row("fastformer_base", tmp_path, GPUS=str(gpus), MAX_TOKENS=str(max_tokens))
    assert (cfg.dataset.max_tokens, list(cfg.optimization.update_freq)) == (max_tokens, [update_freq])
    assert cfg.distributed_training.distributed_world_size == gpus


def test_the_refusal_of_a_script_is_passed_on(tmp_path):
    with pytest.raises(UsageError, match=r"^train\.sh: there is no dict\.en\.txt"):
        script_command(TRAIN, {"DATA": str(tmp_path)}, ["block_base"])


def test_the_table_has_a_line_for_each(monkeypatch, capsys, recipes):
    built = [recipes["luna_16_elu_untied"], recipes["luna_big"]]
    monkeypatch.setattr(dry_run, "recipes", lambda folder, rows: built)
    assert dry_run.main([str(ROWS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert len(cells) == 2 + 2
    parameters = built[0].parameters / 1e6
    assert cells[2][:5] == ["luna_16_elu_untied", f"{parameters:.2f}M", "77.5M", f"{parameters - 77.5:+.2f}M", "65,536"]
    assert cells[3][:4] == ["luna_big", f"{built[1].parameters / 1e6:.2f}M", "", ""]


def test_other_parameters_than_the_papers_fail(monkeypatch, capsys, recipes):
    built = [recipes["luna_16_elu_untied"]._replace(paper=70.0)]
    monkeypatch.setattr(dry_run, "recipes", lambda folder, rows: built)
    assert dry_run.main([str(ROWS)]) == 1
    assert capsys.readouterr().err == "dry_run.py: luna_16_elu_untied: 77564928 parameters, 70.0M in the paper\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((".",), "there is no paper.yaml"), ((str(ROWS), "luna_8"), "is called luna_8")],
    ids=["folder", "row"],
)
def test_bad_arguments_are_refused_in_one_line(monkeypatch, capsys, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert dry_run.main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("overrides", "said"),
    [((), "task.data is not set: add task.data=VALUE"), (("task.data",), "task.data: must be SECTION.NAME=VALUE")],
)
def test_an_incomplete_yaml_is_refused(capsys, overrides, said):
    assert yaml_flags.main([str(ROWS / "config" / "luna_big.yaml"), *overrides]) == 2
    assert capsys.readouterr().err.startswith(f"yaml_flags.py: {said}")


def test_an_override_is_taken_as_it_is(capsys):
    assert yaml_flags.main([str(ROWS / "config" / "luna_big.yaml"), "task.data=a b=1e5"]) == 0
    data, *flags = capsys.readouterr().out.splitlines()
    assert data == "a b=1e5"
    assert {"--arch=luna", "--share-all-embeddings", "--milestones=300000,450000"} <= set(flags)
