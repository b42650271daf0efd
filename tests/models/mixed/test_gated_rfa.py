"""A checkpoint of gated-rfa from before the bound of its sums was in proportion to the features keeps its numbers."""

from support import as_prefix, build_model, sentences

NAMES = {"encoder_self_attention": "gated-rfa", "decoder_self_attention": "gated-rfa"}


def logits(model):
    return model.eval()(sentences(9, 3), None, as_prefix(sentences(7, 4, seed=2)))[0]


def test_a_checkpoint_without_the_marker_has_the_authors_bound_when_it_is_loaded_and_saved_again():
    flags = {**NAMES, "num_features": 8, "attention_kernel_size": 5}
    new = build_model("mixed", **flags)
    marked = new.state_dict()
    unmarked = {name: x for name, x in marked.items() if not name.endswith("bound_by_features")}
    assert len(marked) - len(unmarked) == len(new.encoder.layers) + len(new.decoder.layers)
    old, again = (build_model("mixed", seed=seed, **flags) for seed in (1, 2))
    old.load_state_dict(unmarked)
    again.load_state_dict(old.state_dict())
    assert logits(again).equal(logits(old))
    assert (logits(old) - logits(new)).abs().max() > 1e-3
    again.load_state_dict(marked)
    assert logits(again).equal(logits(new))
