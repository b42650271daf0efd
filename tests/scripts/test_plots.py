"""Attention maps are the modules' weights, with the words they belong to; curves are those of the logs."""

import json
import logging
import math
from pathlib import Path

import pytest
import torch
from matplotlib import image
from torch.testing import assert_close

import plot_attention
import plot_curves
from commands import APOLLO, FAMILIES, train
from fairseq_luna.usage_error import UsageError
from own_command import with_defaults
from plots import drawing
from plots.maps import SIDES, Axis, Pair, attention_maps
from plots.recorders import convolved
from support import PAD, as_prefix, build_model, sentences
from variants import FAMILIES as VARIANTS

CLOSE = {"rtol": 1e-4, "atol": 1e-5}  # fp32 sums in another order
LUNA = ("tied", "untied-elu", "prenorm", "packed-heads", "segment-bias", "convolution")
luna = pytest.mark.parametrize("flags", [VARIANTS["luna"][name] for name in LUNA], ids=LUNA)


def pair_of(source, target):
    prefix = as_prefix(target)
    return Pair(source, prefix, [f"$s{n}$" for n in range(source.shape[1])], [f"t{n}" for n in range(prefix.shape[1])])


@pytest.fixture
def pair():
    return pair_of(sentences(9), sentences(7, seed=2))


def maps_of(model, pair, side, layer=1):
    """The weights of one attention by their kinds, the module, its arguments by name, and its result."""
    half = model.encoder if side == "encoder" else model.decoder
    module = getattr(half.layers[layer], "encoder_attn" if side == "cross" else "self_attn")
    module = getattr(module, "attention", module)
    calls = []
    handle = module.register_forward_hook(
        lambda module, args, given, out: calls.append(((*args, *given.values()), out)), with_kwargs=True
    )
    found = attention_maps(model.eval(), pair, [side], [layer])
    handle.remove()
    assert all((each.side, each.layer) == (side, layer) for each in found)
    assert all(each.weights.shape[1:] == (len(each.rows.labels), len(each.columns.labels)) for each in found)
    return {each.kind: each.weights for each in found}, module, *calls[-1]


def cut(x, heads):
    """``(T, 1, C)`` as ``(H, T, D)``."""
    return torch.stack(x[:, 0].chunk(heads, dim=-1))


def joined(x):
    """``(H, T, D)`` as ``(T, 1, C)``."""
    return torch.cat(list(x), dim=-1)[:, None]


def assert_shares(*weights):
    for each in weights:
        assert (each >= 0).all()
        assert_close(each.sum(-1), torch.ones(each.shape[:-1]))


@luna
@pytest.mark.parametrize("side", ["encoder", "cross"])
def test_luna_maps_reproduce_the_packed_sequence_and_the_output(flags, side, pair):
    maps, attention, (_, _, context, *_), (output, packed, _) = maps_of(build_model("luna", **flags), pair, side)
    pack, unpack = maps["pack"], maps["unpack"]
    assert_shares(pack, unpack)
    write, read = (attention.pc_proj, attention.c_proj) if attention.tie_kv else (attention.pv_proj, attention.v_proj)
    words = convolved(attention, context, None, causal=False)
    assert_close(joined(pack @ cut(write(words), attention.num_packed_heads)), packed, **CLOSE)
    assert_close(attention.out_proj(joined(unpack @ cut(read(packed), 4))), output, **CLOSE)
    assert_close(maps["through"], unpack @ pack.mean(0))


@luna
def test_causal_maps_reproduce_the_scores_and_the_output(flags, pair):
    maps, attention, (query, packed, *_), (output, _) = maps_of(build_model("luna", **flags), pair, "decoder")
    query = convolved(attention, query, None, causal=True)
    pack, unpack, through = (maps[kind] for kind in ("pack", "unpack", "through"))
    size = query.shape[-1] // 4
    score = cut(attention.pq_proj(packed), 4) @ cut(attention.pc_proj(query), 4).mT / math.sqrt(size)
    positive = (
        torch.where(score > 0, score + 1, score.exp()) if "luna_activation" in flags else torch.log2(1 + 2**score)
    )
    assert_close(pack, positive, **CLOSE)
    key, value = (attention.c_proj,) * 2 if attention.tie_kv else (attention.k_proj, attention.v_proj)
    k, v, q = (cut(projection(query), 4) for projection in (key, value, attention.q_proj))
    for t in range(7):
        packed_keys = pack[:, :, : t + 1] @ k[:, : t + 1] / (t + 1)
        assert_close(unpack[:, t], ((packed_keys @ q[:, t, :, None])[..., 0] / math.sqrt(size)).softmax(-1), **CLOSE)
    assert_close(attention.out_proj(joined(through @ v)), output, **CLOSE)
    assert not through.triu(1).any()


def test_with_cross_self_attention_the_source_comes_first(pair):
    model = build_model("luna", cross_self_attention=True).eval()
    (through,) = [each for each in attention_maps(model, pair, ["decoder"]) if each.kind == "through"]
    assert through.columns.labels == pair.source_words + pair.prefix_words
    assert not through.weights[:, :, 9:].triu(1).any() and (through.weights[:, :, :9] > 0).all()


FASTFORMERS = [("fastformer", "default"), ("fastformer", "sum-global"), ("fastformer", "concat-one")]
FASTFORMERS += [("fastformer", "convolution"), ("mixed", "fastformer")]


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize(("family", "variant"), FASTFORMERS, ids=map("-".join, FASTFORMERS))
def test_fastformer_maps_reproduce_the_output(side, family, variant, pair):
    maps, attention, (x, *_), output = maps_of(build_model(family, **VARIANTS[family][variant]), pair, side)
    query, key = maps["query"], maps["key"]
    assert query.shape == key.shape == ((4, 1, 9) if side == "encoder" else (4, 7, 7))
    assert_shares(query, key)
    assert side == "encoder" or not (query.triu(1).any() or key.triu(1).any())
    learned = attention.learned_maps()
    q, k, v = attention.queries_keys_values(convolved(attention, x, None, causal=side == "decoder"))
    u = learned.combine_value(key @ learned.combine_key(query @ q, k), v)
    assert_close(attention.project_with_residual(u, q, query @ q), output, **CLOSE)


@pytest.mark.parametrize("family", ["block", "transformer"])
def test_source_attention_maps_reproduce_the_output(family, pair):
    maps, attention, (_, source, *_), output = maps_of(build_model(family), pair, "cross")
    assert_shares(maps["weights"])
    assert_close(attention.out_proj(joined(maps["weights"] @ cut(attention.v_proj(source), 4))), output[0], **CLOSE)


@pytest.mark.parametrize(
    "flags", [{"family": "luna"}, {"family": "luna", "cross_self_attention": True}, {"family": "fastformer"}]
)
def test_padding_has_no_weight_and_changes_no_weight(flags, pair):
    model = build_model(**flags).eval()
    padding = torch.full((1, 3), PAD)
    padded = pair_of(torch.cat([pair.source, padding], 1), torch.cat([sentences(7, seed=2), padding[:, :2]], 1))
    for expected, found in zip(attention_maps(model, pair), attention_maps(model, padded), strict=True):
        longer = {
            "source words": slice(9),
            "slot": slice(None),
            "": slice(None),
            "source and target words read": [*range(9), *range(12, 19)],
        }
        rows, columns = (longer.get(axis.name, slice(7)) for axis in (found.rows, found.columns))
        assert_close(found.weights[:, rows][:, :, columns], expected.weights, **CLOSE)
        assert_close(found.weights[:, rows].sum(), expected.weights.sum())


@pytest.mark.parametrize(
    ("flags", "side", "layer", "complaint"),
    [
        ({"family": "luna"}, "encoder", 2, "--layers 2: encoder has 2, counted from 0"),
        (
            *({"family": "luna", "cross_self_attention": True, "no_cross_attention": True}, "cross", 0),
            "--attention cross: this model has none",
        ),
        ({"family": "block"}, "encoder", 0, "--attention encoder: BlockAttention cannot be drawn, only"),
        ({"family": "transformer"}, "decoder", 0, "--attention decoder: MultiheadAttention cannot be drawn, only"),
    ],
)
def test_an_attention_that_cannot_be_drawn_is_refused(flags, side, layer, complaint, pair):
    with pytest.raises(UsageError, match=complaint):
        attention_maps(build_model(**flags).eval(), pair, [side], [layer])


def test_the_model_is_unchanged(pair):
    model = build_model("luna").eval()
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    attention_maps(model, pair)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_picture_has_the_words_at_its_axes(pair):
    maps = attention_maps(build_model("luna", **VARIANTS["luna"]["packed-heads"]).eval(), pair, ["cross"])
    figure = drawing.draw(maps, [])
    figure.draw_without_rendering()
    panels = {axis.get_title(): axis for axis in figure.axes if axis.get_title() and axis.get_visible()}
    heads = {"pack": 8, "unpack": 4, "through": 4}
    black = [f"{float(drawn.weights.max()):.2g}" for drawn in maps]
    assert list(panels) == [
        f"cross-attention, layer 1\n{kind}, head {head}; black: {most}"
        for (kind, count), most in zip(heads.items(), black, strict=True)
        for head in range(count)
    ]
    through = panels[f"cross-attention, layer 1\nthrough, head 3; black: {black[2]}"]
    assert [label.get_text() for label in through.get_xticklabels()] == pair.source_words
    assert [label.get_text() for label in through.get_yticklabels()] == pair.prefix_words[1:] + pair.prefix_words[:1]
    assert_close(torch.tensor(through.images[0].get_array().data), maps[2].weights[3])
    long = maps[2]._replace(columns=Axis("words", ["w"] * 41), weights=torch.ones(4, 7, 41))
    assert drawing.draw([long], [0]).axes[0].get_xticks().size == 0  # more than 40 could not be read
    with pytest.raises(UsageError, match="too many maps for one picture: choose fewer --layers"):
        drawing.draw(maps * 7, [])


def test_one_head_of_several_maps_is_one_row_and_pieces_are_shown_as_words(pair):
    pair = pair._replace(source_words=["▁A", "▁kara", "te", ".", "▁", "</s>", *pair.source_words[6:]])
    maps = attention_maps(build_model("luna").eval(), pair, ["cross"])
    pack, unpack, through = drawing.draw(maps, [1]).axes
    assert [axis.get_gridspec().nrows for axis in (pack, unpack, through)] == [1, 1, 1]
    assert [label.get_text() for label in pack.get_xticklabels()][:6] == ["A", "kara", "-te", ".", "(space)", "(end)"]


@pytest.fixture(scope="module")
def trained(tiny_data, tmp_path_factory):
    """A checkpoint, and the log of two epochs and of a resumed third one."""
    folder = tmp_path_factory.mktemp("run")
    flags = (*FAMILIES["luna"], *APOLLO, "--log-format=json", "--log-interval=2", f"--log-file={folder / 'log.json'}")
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    root.setLevel(logging.INFO)  # as in a separate process
    for epochs in (2, 3):
        checkpoint = train(tiny_data, folder, *flags, f"--max-epoch={epochs}")
    root.setLevel(level)
    root.handlers[:] = handlers
    return checkpoint


def drawn(picture: Path):
    pixels = image.imread(picture)
    return pixels[..., :3].std() > 0.05 and min(pixels.shape[:2]) > 100


@pytest.mark.parametrize("target", [["--target", "w3 w2"], []], ids=["given", "translated"])
def test_a_trained_checkpoint_is_drawn(target, trained, tmp_path, capsys):
    output = tmp_path / "maps.png"
    flags = ["--layers", "0", "1", "--heads", "1", "--output", str(output)]
    assert plot_attention.main([str(trained), "--source", "w2 w3 w4", *target, *flags]) == 0
    maps = [f"{side} layer {n} {kind}" for side in SIDES for n in (0, 1) for kind in ("pack", "unpack")]
    assert capsys.readouterr().out.splitlines()[-1] == f"{output}: {', '.join(maps)}"
    assert drawn(output)
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize(
    ("flag", "value", "complaint"),
    [
        ("--source", " ", "--source: the sentence is empty"),
        ("--source", "w1 A man", "--source: most words are not in the dictionary"),
        ("--target", "w1 " * 2000, "--target: 2001 tokens, but the model reads at most"),
        ("--heads", "7", "--heads 7: encoder pack has 2, from 0"),
        ("--data", "nowhere", "--data nowhere (data=): there is no such folder"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(flag, value, complaint, trained, tmp_path, capsys):
    defaults = {"--source": "w1 w2", "--target": "w2", "--output": str(tmp_path / "maps.png")}
    assert plot_attention.main([str(trained), *with_defaults([flag, value], defaults)]) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def step(update, loss, **values):
    """A line of fairseq's, logged during an epoch."""
    named = {name: str(value) for name, value in {"loss": loss, "num_updates": update, **values}.items()}
    return json.dumps({"epoch": 1, "lr": "0.1", **named})


def validation(update, subset="valid", **values):
    named = {f"{subset}_{name}": str(value) for name, value in {**values, "num_updates": update}.items()}
    return json.dumps({"epoch": 1, **named})


def read(folder, *lines):
    (folder / "log.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return plot_curves.read(folder / "log.json")


def test_a_real_resumed_log_is_one_training(trained, tmp_path):
    log = trained.parent / "log.json"
    found = plot_curves.read(log)
    assert list(found["loss"]) == list(found["hours"]) == list(range(2, 25, 2))  # 8 updates an epoch
    assert list(found["valid_loss"]) == list(found["valid_ppl"]) == [8, 16, 24]
    captured = (f"2026-11-21 07:09:31 | INFO | train_inner | {line}" for line in log.read_text().splitlines())
    assert read(tmp_path, *captured) == found


def test_a_resumed_run_replaces_the_later_updates_of_the_killed_one(tmp_path):
    killed = [step(10, 9), step(20, 8), validation(25, bleu=1), step(30, 7), validation(35, bleu=9), step(40, 6)]
    resumed = [step(30, 5)[:-9] + step(30, 5), validation(32, bleu=2), step(40, "nan"), '{"num_updates": null}', "[1]"]
    found = read(tmp_path, "{'_name': None}", *killed, *resumed)
    assert found["loss"] == {10: 9, 20: 8, 30: 5, 40: pytest.approx(math.nan, nan_ok=True)}
    assert found["valid_bleu"] == {25: 1, 32: 2}


def test_curves_against_updates_hours_and_minutes(tmp_path):
    killed = [step(10, 9, train_wall=3600), validation(15, ppl=8), step(20, 7, train_wall=7200), validation(25, ppl=1)]
    # "train_wall" of an epoch's line is not that of the others.
    resumed = [step(20, 6, train_wall=1800), validation(20, "train", wall=9), step(30, 5, train_wall=3600)]
    run = read(tmp_path, *killed, *resumed, validation(30, ppl=4))
    losses, perplexities = [9, 6, 5], [8, 4]
    for hours, at in ((False, ([10, 20, 30], [15, 30])), (True, ([1, 1.5, 2.5], [1.25, 2.5]))):
        figure = plot_curves.draw({"a": run}, hours=hours)
        lines = [(list(line.get_xdata()), list(line.get_ydata())) for axis in figure.axes for line in axis.lines]
        assert lines == [(at[0], losses), (at[1], perplexities)]
        assert [axis.get_ylabel() for axis in figure.axes] == ["training loss (base 2)", "valid perplexity"]
    axis, *_ = plot_curves.draw({"a": read(tmp_path, step(10, 9, train_wall=360))}, hours=True).axes
    assert (axis.get_xlabel(), list(axis.lines[0].get_xdata())) == ("minutes of training", pytest.approx([6]))


def test_the_script_draws_several_runs(trained, tmp_path):
    log, picture = trained.parent / "log.json", tmp_path / "curves.png"
    assert plot_curves.main([str(log), f"other={log}", "--against=hours", f"--output={picture}"]) == 0
    assert drawn(picture)
