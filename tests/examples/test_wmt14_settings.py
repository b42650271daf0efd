"""Every row and every YAML of the WMT14 recipes comes to the paper's model and training."""

import re

import pytest
from fairseq.optim import lr_scheduler
from omegaconf import OmegaConf

import dry_run
from examples.wmt14_runs import ROWS
from recipes.model import build, count_parameters, plain_settings, write_dictionaries
from recipes.settings import CommandError, command_settings, script_command, yaml_settings

# hydra says of every config that it will be stricter one day.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

PAPER = OmegaConf.load(ROWS / "paper.yaml")


@pytest.fixture(scope="module")
def recipes():
    """``{row: (script, YAML)}``."""
    found = list(dry_run.recipes(ROWS))
    pairs = zip(found[::2], found[1::2], strict=True)
    return {script.row: (script, yaml) for script, yaml in pairs}


def test_every_file_is_a_row_and_every_row_has_its_files():
    rows = set(PAPER.rows)
    assert {path.stem for path in ROWS.glob("*.sh")} - {"train", "score"} == rows
    assert {path.stem for path in (ROWS / "config").glob("*.yaml")} == rows


@pytest.mark.parametrize("row", [row for row in PAPER.rows if PAPER.rows[row]])
def test_the_papers_figures_are_the_same_wherever_they_stand(row):
    figures = PAPER.rows[row]
    for file in (ROWS / f"{row}.sh", ROWS / "config" / f"{row}.yaml"):
        assert f"{figures.parameters}M parameters, {figures.bleu} BLEU" in file.read_text()
    (line,) = re.findall(rf"^\| `{row}` .*$", (ROWS / "README.md").read_text(), flags=re.M)
    assert line.endswith(f"| {figures.parameters}M | {figures.bleu} |")


@pytest.mark.parametrize("row", PAPER.rows)
def test_script_and_yaml_come_to_the_same_settings(recipes, row):
    script, yaml = recipes[row]
    assert (script.source, yaml.source) == ("script", "YAML")
    assert len(script.settings) > 200
    assert dry_run.disagreements(script, yaml) == []
    assert script.parameters == yaml.parameters


@pytest.mark.parametrize("row", [row for row in PAPER.rows if PAPER.rows[row]])
def test_parameters_are_the_papers(recipes, row):
    for recipe in recipes[row]:
        assert recipe.parameters / 1e6 == pytest.approx(PAPER.rows[row].parameters, abs=0.1)


@pytest.mark.parametrize("row", [row for row in PAPER.rows if re.match(r"luna_\d", row)])
def test_a_luna_rows_name_says_what_it_trains(recipes, row):
    _, length, activation, tied = row.split("_")
    settings = recipes[row][0].settings
    assert settings["model.projection_length"] == int(length)
    assert settings["model.luna_activation"] == activation
    assert settings["model.untie_luna_kv"] == (tied == "untied")
    assert settings["model.encoder.projected_attention_heads"] == 8


@pytest.mark.parametrize("row", PAPER.rows)
def test_what_the_paper_sets_for_all(recipes, row):
    script, _ = recipes[row]
    assert script.tokens_an_update == 8 * 8192
    expected = {
        "criterion.label_smoothing": 0.1,
        "optimization.max_update": 500000,
        "optimization.clip_norm": 1.0,
        "model.dropout": 0.3 if row == "luna_big" else 0.1,
        "optimizer._name": "adam" if row.endswith("adam") else "apollo",
    }
    assert {name: script.settings[name] for name in expected} == expected


def test_apollos_rates(tmp_path):
    cfg, built = built_script("luna_16_elu_tied", tmp_path)
    optimizer = cfg.optimizer
    assert (optimizer.apollo_beta, optimizer.apollo_eps, optimizer.apollo_rebound) == (0.9, 1e-4, "constant")
    assert (optimizer.weight_decay, optimizer.weight_decay_type) == (1e-8, "L2")
    rates = {update: built.schedule.step_update(update) for update in (0, 500, 1000, 299999, 300000, 450000, 500000)}
    assert rates == pytest.approx(
        {0: 1e-5, 500: 0.050005, 1000: 0.1, 299999: 0.1, 300000: 0.01, 450000: 0.001, 500000: 0.001}
    )


def test_adams_rates(tmp_path):
    cfg, built = built_script("transformer_base_adam", tmp_path)
    assert built.optimizer.optimizer_config["betas"] == (0.9, 0.98)
    assert cfg.optimizer.weight_decay == 1e-4
    assert isinstance(built.schedule, lr_scheduler.LR_SCHEDULER_REGISTRY["inverse_sqrt"])
    rates = [built.schedule.step_update(update) for update in (4000, 16000)]
    assert rates == pytest.approx([5e-4, 2.5e-4])


def built_script(row, folder, flags=(), **environment):
    write_dictionaries(folder, 100, ("en", "de"))
    command = script_command(ROWS / f"{row}.sh", {"DATA": str(folder), "GPUS": "8", **environment}, flags)
    cfg = command_settings(command)
    return cfg, build(cfg)


def test_the_authors_clipping_is_an_option(tmp_path):
    flags = ("--apollo-clip-mode", "each", "--clip-norm", "0.1")
    cfg, built = built_script("luna_32_softplus_untied", tmp_path, flags)
    assert built.optimizer.clips_each
    assert cfg.optimization.clip_norm == 0.1

    overrides = ("optimizer.apollo_clip_mode=each", "optimization.clip_norm=0.1", f"task.data={tmp_path}")
    config = ROWS / "config" / "luna_32_softplus_untied.yaml"
    cfg = yaml_settings(config, (*overrides, f"common.user_dir={dry_run.USER_DIR}"))
    assert build(cfg).optimizer.clips_each


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_an_update_has_as_many_tokens_on_any_number_of_gpus(tmp_path, gpus):
    cfg, built = built_script("fastformer_base", tmp_path, GPUS=str(gpus))
    script = recipe(cfg, built)
    assert script.tokens_an_update == 8 * 8192
    assert script.settings["distributed_training.distributed_world_size"] == gpus


def test_smaller_batches_make_more_of_them(tmp_path):
    cfg, _ = built_script("fastformer_base", tmp_path, GPUS="4", MAX_TOKENS="4096")
    assert (cfg.dataset.max_tokens, list(cfg.optimization.update_freq)) == (4096, [4])


def recipe(cfg, built):
    return dry_run.Recipe("row", "script", count_parameters(built.model), None, plain_settings(cfg, built.model))


def test_a_setting_that_differs_is_named(recipes):
    script, yaml = recipes["block_base"]
    changed = yaml._replace(settings={**yaml.settings, "model.decoder.block_size": 4})
    assert dry_run.disagreements(script, changed) == [
        "block_base: model.decoder.block_size is 8 in the script, 4 in YAML"
    ]
    larger = script._replace(paper=70.0)
    (line,) = dry_run.disagreements(larger, yaml)
    assert line == f"block_base: {script.parameters} parameters, but 70.0 million in the paper"


def test_a_scripts_own_refusal_is_handed_on(tmp_path):
    with pytest.raises(CommandError, match=r"^block_base\.sh: there is no dict\.en\.txt"):
        script_command(ROWS / "block_base.sh", {"DATA": str(tmp_path)})


def test_the_table_has_a_line_for_each(monkeypatch, capsys, recipes):
    built = [*recipes["luna_16_elu_untied"], *recipes["luna_big"]]
    monkeypatch.setattr(dry_run, "recipes", lambda folder, rows: built)
    monkeypatch.setattr("sys.argv", ["dry_run.py", str(ROWS)])
    assert dry_run.main() == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert len(cells) == 2 + 4
    parameters = built[0].parameters / 1e6
    assert cells[2][:6] == [
        *("luna_16_elu_untied", "script", f"{parameters:.2f}M", "77.5M", f"{parameters - 77.5:+.2f}M", "65,536")
    ]
    assert cells[5][:5] == ["luna_big", "YAML", f"{built[3].parameters / 1e6:.2f}M", "", ""]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((".",), "there is no paper.yaml"), ((str(ROWS), "luna_8"), "is called luna_8")],
    ids=["folder", "row"],
)
def test_bad_arguments_are_refused_in_one_line(monkeypatch, capsys, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["dry_run.py", *arguments])
    assert dry_run.main() == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert said in line
