"""A trained transformer as the start of another model: the same outputs where they can be, and nothing unexplained."""

import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from commands import APOLLO, TRANSFORMER, run, train
from fairseq_luna.commands.converting.converted_settings import settings_to_verify
from fairseq_luna.commands.converting.parameters import NO_PARAMETER, convert_parameters
from fairseq_luna.model_settings import settings_as_dict
from fairseq_luna.models.mixed.chosen_attentions import ATTENTIONS, fields_for
from fairseq_luna.usage_error import CheckpointMismatch
from own_command import refused, shown
from support import PAD, as_prefix, build_model, sentences

WIDE = {"encoder_self_attention": "local", "decoder_self_attention": "local", "attention_window": 20}
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
ADAPTIVE = fields_for("adaptive-span")
LINFORMER = fields_for("linformer")
# The old and the new model, which compute the same.
EQUAL = {
    "transformer-mixed": (("transformer", {}), ("mixed", {})),
    "transformer-convolved": (("transformer", {}), ("mixed", {"attention_kernel_size": 5})),
    "transformer-wide-window": (("transformer", {}), ("mixed", WIDE)),
    "transformer-adaptive-span": (("transformer", {}), ("mixed", ADAPTIVE)),
    "transformer-bp": (("transformer", {}), ("mixed", {**fields_for("bp"), "attention_nodes": 20})),
    "transformer-xl": (("transformer", {}), ("mixed", fields_for("transformer-xl"))),
    "transformer-one-block": (("transformer", {}), ("block", {"num_blocks": 1, "decoder_block_size": 20})),
    "more-positions": (
        ("transformer", {**LEARNED, "max_source_positions": 20}),
        ("mixed", {**LEARNED, "max_source_positions": 30}),
    ),
    "longer-kernel": (("mixed", {"attention_kernel_size": 3}), ("mixed", {"attention_kernel_size": 5})),
    "linformer-untied": (("mixed", {**LINFORMER, "linformer_share": "kv"}), ("mixed", LINFORMER)),
    "linformer-layers": (
        ("mixed", {**LINFORMER, "linformer_share": "layers"}),
        ("mixed", {**LINFORMER, "linformer_share": "kv"}),
    ),
    "luna-untied": (("luna", {}), ("luna", {"untie_luna_kv": True})),
    "luna-convolved": (("luna", {}), ("luna", {"attention_kernel_size": 5})),
    "luna-more-slots": (("luna", {"projection_length": 10}), ("luna", {"projection_length": 12})),
    "fastformer-untied": (
        ("fastformer", {"fastformer_share": "query-key-value"}),
        ("fastformer", {"fastformer_share": "none"}),
    ),
    "fastformer-convolved": (("fastformer", {}), ("fastformer", {"attention_kernel_size": 3})),
    "block-untied": (("block", {"share_block_levels": True}), ("block", {})),
    "block-convolved": (("block", {}), ("block", {"attention_kernel_size": 3})),
}
# What a transformer becomes.
FAMILIES = {
    **{name: ("mixed", fields_for(name)) for name in ATTENTIONS},
    "luna": ("luna", {"luna_source_attention": "softmax"}),
    "luna-packed": ("luna", {"untie_luna_kv": True}),
    "luna-prenorm": ("luna", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
    "fastformer": ("fastformer", {"fastformer_combine": "concat"}),
    "fastformer-one": ("fastformer", {"fastformer_share_layers": True}),
    "block": ("block", {}),
}


def logits(model):
    prefix = as_prefix(sentences(4, 6, 2, seed=2))
    return model.eval()(sentences(9, 3, 5), None, prefix)[0][prefix.ne(PAD)]


@pytest.mark.parametrize(("before", "after"), EQUAL.values(), ids=EQUAL)
def test_the_outputs_stay_the_same(before, after):
    old, new = (build_model(family, seed=seed, **flags) for seed, (family, flags) in enumerate((before, after)))
    assert not logits(new).isclose(logits(old)).all()
    convert_parameters(old, new)
    torch.testing.assert_close(logits(new), logits(old))


@pytest.mark.parametrize(("family", "flags"), FAMILIES.values(), ids=FAMILIES)
def test_everything_but_attention_is_the_transformers_and_every_parameter_is_explained(family, flags):
    shared = {name: value for name, value in flags.items() if "normalize" in name}
    old, new = build_model("transformer", **shared), build_model(family, seed=1, **flags)
    start = {name: value.clone() for name, value in new.state_dict().items()}
    parts, left = convert_parameters(old, new)
    ours = {name: value for name, value in new.state_dict().items() if not NO_PARAMETER.search(name)}
    theirs = {name: value for name, value in old.named_parameters() if not NO_PARAMETER.search(name)}
    packed = family == "luna" and "luna_source_attention" not in flags
    for name, value in theirs.items():
        if "_attn." not in name or ("encoder_attn." in name and not packed and "source_attention" not in flags):
            assert ours[name].equal(value), name
    assert sum(part.numel for part in parts) == sum({v.data_ptr(): v.numel() for v in ours.values()}.values())
    for part in parts:
        assert ours[part.name].equal(start[part.name]) == (part.origin == "new") or part.numel == 32, part
        assert part.is_copied == (part.origin not in ("new", "zero", "identity", "open_gate", "ones")), part
    assert all("_attn." in part.name for part in left)


# What another attention becomes, and the parts of it that have a counterpart under another name or in another shape.
FROM = {
    "block": ("block", {}, {"out_proj": "out_proj"}),
    "block-convolved": ("block", {"attention_kernel_size": 3}, {"out_proj": "out_proj"}),
    "fastformer": ("fastformer", {}, {"v_proj": "q_proj"}),
    "luna": ("luna", {"luna_source_attention": "softmax"}, {"k_proj": "pc_proj", "v_proj": "c_proj"}),
    "reformer": ("mixed", {"encoder_self_attention": "reformer"}, {"k_proj": "q_proj"}),
}


@pytest.mark.parametrize("kernel_size", [0, 3], ids=["plain", "convolved"])
@pytest.mark.parametrize(("family", "flags", "parts"), FROM.values(), ids=FROM)
def test_what_has_a_counterpart_is_not_drawn_at_random(family, flags, parts, kernel_size):
    old, new = build_model(family, **flags), build_model("mixed", seed=1, attention_kernel_size=kernel_size)
    made, _ = convert_parameters(old, new)
    assert [part.name for part in made if part.origin == "new"] == []
    for side in ("encoder", "decoder"):
        theirs, ours = (getattr(model, side).layers[0].self_attn for model in (old, new))
        for name, origin in parts.items():
            if name == origin or not hasattr(theirs, name):
                part = getattr(ours, name)
                given = getattr(theirs, origin).weight
                assert part.weight.equal(given[:, : part.weight.shape[1]]), (side, name)


def test_random_features_of_another_number_keep_their_own_seed():
    old, new = (build_model("mixed", seed=n, decoder_self_attention="rfa", num_features=n) for n in (8, 12))
    convert_parameters(old, new)
    features = new.decoder.layers[0].self_attn.feature_map
    assert features.matrices.equal(features.matrices_by_number(range(features.num_heads)))


def test_retention_starts_with_an_open_gate():
    """Its projections are a transformer's; its gate changes nothing."""
    old, new = build_model("transformer"), build_model("mixed", seed=1, decoder_self_attention="retention")
    convert_parameters(old, new)
    theirs, ours = (model.decoder.layers[0].self_attn for model in (old, new))
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        assert getattr(ours, name).weight.equal(getattr(theirs, name).weight)
    gate = torch.nn.functional.silu(ours.gate_proj(torch.randn(3, ours.embed_dim)))
    torch.testing.assert_close(gate, torch.ones_like(gate))


def of_the_model(words, start):
    """The flags of the model ``start`` in a command of fairseq-train."""
    first = min(words.index(flag) for flag in ("-s", "--criterion") if flag in words)
    return [*words[words.index("--user-dir") + 2 : first], f"--finetune-from-model={start}"]


@pytest.fixture(scope="module")
def transformer(tiny_data, tmp_path_factory):
    """A checkpoint of fairseq's transformer after an update."""
    return one_update(tiny_data, tmp_path_factory.mktemp("transformer"), *TRANSFORMER, "--dropout=0.2")


def one_update(data, folder, *flags):
    return train(data, folder, *APOLLO, "--max-update=1", "--disable-validation", *flags)


def read(path):
    return torch.load(path, weights_only=True)


def test_the_result_is_trained_with_the_flags_that_the_command_prints(tiny_data, transformer, tmp_path, capsys):
    start = tmp_path / "start.pt"
    given = ["--decoder-self-attention=linear", "--attention-kernel-size=3", f"--output={start}"]
    lines = shown(capsys, "convert", transformer, "--arch=mixed_tiny", *given).splitlines()
    assert "decoder.layers.*.self_attn.convolution" in {line.split()[0] for line in lines if line.endswith("zero")}
    words = shlex.split(lines[-1].strip())
    assert [Path(words[0]).name, *words[1:3]] == ["fairseq-train", tiny_data, "--user-dir"]
    run("train", *words[1:], "--cpu", "--max-update=1", "--num-workers=0", "--disable-validation")
    trained, made = read(tmp_path / "start" / "checkpoint_last.pt"), read(start)
    assert trained["cfg"]["optimizer"]["_name"] == "adam"
    assert trained["optimizer_history"][-1]["num_updates"] == 1
    assert settings_to_verify(trained["cfg"]["model"]) == settings_to_verify(made["cfg"]["model"])
    assert (made["cfg"]["model"]["encoder_embed_dim"], made["cfg"]["model"]["dropout"]) == (16, 0.2)
    others = [*of_the_model(words, start), "--decoder-self-attention=softmax"]  # with the same tensors
    with pytest.raises(CheckpointMismatch, match=r"was made for --decoder-self-attention=linear: give the flags that"):
        one_update(tiny_data, tmp_path / "other", *others)
    for name, value in read(transformer)["model"].items():
        marker = name.endswith((".version", "._float_tensor"))  # fairseq does not set the second
        if name in made["model"] and not marker:
            assert made["model"][name].equal(value), name


def raw_data(folder):
    """Words in text files, among them a sentence that is longer than the model reads."""
    folder.mkdir()
    words = [f"w{number}" for number in range(20)]
    for language in ("a", "b"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{word} 9\n" for word in words), encoding="utf-8")
        for split in ("train", "valid"):
            lines = [" ".join(words[start:]) for start in range(18)] + [" ".join(words * 2)] * (language == "a")
            lines += ["w1"] * (language == "b")
            (folder / f"{split}.a-b.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder)


LANGUAGES = ("--langs=a,b", "--lang-pairs=a-b", "--encoder-langtok=tgt", "--decoder-langtok")
# The flags of a training without which its data cannot be read, or its loss is another.
NEEDED = {
    "raw": (
        *("--dataset-impl=raw", "--truncate-source", "--max-source-positions=30", "--ddp-backend=legacy_ddp"),
        *("--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.2", "--report-accuracy"),
    ),
    "languages": ("--task=translation_multi_simple_epoch", "--sampling-method=temperature", *LANGUAGES),
    "bleu": ("--eval-bleu", '--eval-bleu-args={"beam": 2}', "--best-checkpoint-metric=bleu", "--left-pad-source"),
    "long": ("--max-tokens=60", "--skip-invalid-size-inputs-valid-test", "--max-target-positions=9"),
}
SAME = {
    "task": ("truncate_source", "lang_pairs", "langs", "encoder_langtok", "sampling_method", "eval_bleu_args"),
    "criterion": ("label_smoothing", "report_accuracy"),
    "dataset": ("dataset_impl", "max_tokens", "batch_size", "skip_invalid_size_inputs_valid_test"),
    "distributed_training": ("ddp_backend",),
    "checkpoint": ("best_checkpoint_metric",),
}


@pytest.mark.parametrize(("kind", "flags"), NEEDED.items(), ids=NEEDED)
def test_the_printed_command_has_what_the_data_needs(kind, flags, tiny_data, tmp_path, capsys):
    data = raw_data(tmp_path / "raw") if kind == "raw" else tiny_data
    old = train(data, tmp_path / "old", *TRANSFORMER, "--max-update=1", "--share-all-embeddings", *flags)
    start = tmp_path / "start.pt"
    line = shown(capsys, "convert", old, "--arch=mixed_tiny", f"--output={start}").splitlines()[-1]
    run("train", *shlex.split(line)[1:], "--max-update=1")
    before, after = (read(path)["cfg"] for path in (old, tmp_path / "start" / "checkpoint_last.pt"))
    for group, names in SAME.items():
        for name in names:
            found = [settings_as_dict(cfg[group]).get(name) for cfg in (before, after)]
            assert found[0] == found[1], (group, name)


def test_final_norms_of_a_state_without_versions_are_kept(tiny_data, tmp_path, capsys):
    prenorm = ("--encoder-normalize-before", "--decoder-normalize-before")
    old = one_update(tiny_data, tmp_path / "old", *TRANSFORMER, *prenorm, "--store-ema")
    state = read(old)
    state["model"] = {name: value for name, value in state["model"].items() if not name.endswith(".version")}
    torch.save(state, tmp_path / "without.pt")
    checkpoint_utils.save_ema_as_checkpoint(str(old), str(tmp_path / "mean.pt"))
    for name in ("without.pt", "mean.pt"):
        start = tmp_path / f"start-{name}"
        lines = shown(capsys, "convert", tmp_path / name, "--arch=mixed_tiny", f"--output={start}").splitlines()
        origins = {line.split()[0]: line.split("  ")[-1] for line in lines if line}
        assert origins["encoder.layer_norm"] == origins["decoder.layer_norm"] == "the same"
        theirs, ours = read(tmp_path / name)["model"], read(start)["model"]
        for norm in ("encoder.layer_norm.weight", "decoder.layer_norm.bias"):
            assert ours[norm].equal(theirs[norm])


def test_odd_settings_come_back_from_the_printed_command(tiny_data, tmp_path, capsys):
    """Sizes that follow others, a list, and a file with an apostrophe in its name."""
    criterion = ("--criterion=adaptive_loss", "--ddp-backend=legacy_ddp")
    sizes = ("--decoder-output-dim=24", "--decoder-ffn-embed-dim=20", "--adaptive-softmax-cutoff=10,20")
    old = one_update(tiny_data, tmp_path / "old", *TRANSFORMER, *sizes, *criterion)
    start = tmp_path / "it's a start.pt"
    given = ("--encoder-self-attention=local", "--attention-window=3")
    line = shown(capsys, "convert", old, "--arch=mixed_tiny", f"--output={start}", *given).splitlines()[-1]
    printed = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, check=True, text=True)
    assert printed.stdout.splitlines() == shlex.split(line)
    trained = one_update(tiny_data, tmp_path, *of_the_model(shlex.split(line), start), *criterion)
    trained, made = (read(path)["cfg"]["model"] for path in (trained, start))
    assert settings_to_verify(trained) == settings_to_verify(made)
    found = [trained[f"decoder_{name}_dim"] for name in ("output", "ffn_embed")]
    assert (*found, trained["adaptive_softmax_cutoff"]) == (24, 20, [10, 20])


SMOOTHED = ("label_smoothed_cross_entropy", "label_smoothed_cross_entropy_chunked")
LOSSES = {
    **{
        name: ([name, "--label-smoothing=0.25"], [f"--criterion={name}", "--label-smoothing=0.25"]) for name in SMOOTHED
    },
    "cross_entropy": (["cross_entropy"], ["--criterion=cross_entropy"]),
}


@pytest.mark.parametrize(("printed", "flags"), LOSSES.values(), ids=LOSSES)
def test_the_printed_training_has_the_loss_of_the_old_one(printed, flags, tiny_data, tmp_path, capsys):
    old = one_update(tiny_data, tmp_path / "old", *TRANSFORMER, *flags)
    lines = shown(capsys, "convert", old, "--arch=mixed_tiny", f"--output={tmp_path / 'start.pt'}").splitlines()
    words = shlex.split(lines[-1])
    first = words.index("--criterion") + 1
    assert words[first : first + len(printed)] == printed
    assert ("--label-smoothing=0.25" in words) == ("--label-smoothing=0.25" in printed)


def test_the_printed_training_has_the_updates_of_the_old_one(tiny_data, tmp_path, capsys):
    old = one_update(tiny_data, tmp_path / "old", *TRANSFORMER, "--update-freq=2", "--clip-norm=0.7")
    lines = shown(capsys, "convert", old, "--arch=mixed_tiny", f"--output={tmp_path / 'start.pt'}").splitlines()
    assert {"--update-freq=2", "--clip-norm=0.7"} < set(shlex.split(lines[-1]))


@pytest.mark.parametrize(
    ("flags", "message"),
    {
        "size": (["--arch=luna_tiny", "--encoder-layers=4"], "--encoder-layers 4: it is 1 in {file}; leave it out"),
        "arch": (["--arch=transformer"], "--arch transformer: choose one of block, "),
        "value": (["--arch=luna_base", "--projection-length=0"], "--projection-length 0: must be"),
        "of-another-family": (["--arch=luna_base", "--num-blocks=2"], "unrecognized arguments: --num-blocks=2"),
        "diverged": (["{odd}", "--arch=luna_base"], "{odd}: there is NaN in encoder.layers.0.fc1.bias"),
        "more-than-its-flags-say": (["{more}", "--arch=luna_base"], "{more}: its settings do not explain encoder.more"),
        "of-another-kind": (["{lstm}", "--arch=luna_base"], "{lstm}: its --arch is lstm; give a checkpoint of a tr"),
        "folder": (
            ["{folder}", "--arch=luna_base"],
            "{folder}: is a folder; name the checkpoint in it",
        ),
        "same-file": (["--arch=luna_base", "--output={file}"], "--output {file}: that is an input"),
    }.values(),
)
def test_what_cannot_be_is_refused_in_one_line(flags, message, transformer, tmp_path, capsys):
    state, output = read(transformer), tmp_path / "start.pt"
    files = {name: tmp_path / f"{name}.pt" for name in ("odd", "more", "lstm")}
    torch.save({**state, "model": {**state["model"], "encoder.more": torch.ones(1)}}, files["more"])
    torch.save({**state, "cfg": {**state["cfg"], "model": {"_name": "lstm"}}}, files["lstm"])
    state["model"]["encoder.layers.0.fc1.bias"][0] = float("nan")
    torch.save(state, files["odd"])
    files |= {"file": transformer, "folder": transformer.parent}
    flags = [flag.format(**files) for flag in flags]
    read_from = [transformer] if flags[0].startswith("-") else []
    written = [] if any(flag.startswith("--output") for flag in flags) else [f"--output={output}"]
    assert refused(capsys, "convert", *read_from, *written, *flags).startswith(message.format(**files))
    assert not output.exists()
