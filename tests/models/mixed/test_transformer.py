"""With softmax attention in all three places the family is fairseq's transformer."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator

from support import PAD, as_prefix, build_model, sentences, translation_task

FLAGS = {
    "default": {},
    "prenorm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "two-widths": {"decoder_embed_dim": 16, "share_all_embeddings": False},
    "attention-dropout": {"attention_dropout": 0.2},
}
EVERY_FLAG = pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)


def pair(**flags):
    """fairseq's transformer and the same as a mixed model."""
    if "decoder_embed_dim" in flags:
        flags |= {"decoder_output_dim": flags["decoder_embed_dim"], "decoder_input_dim": flags["decoder_embed_dim"]}
    transformer, mixed = build_model("transformer", **flags), build_model("mixed", seed=1, **flags)
    own = mixed.state_dict()
    # fairseq 0.12.2's encoder layers hold a second, untrained copy of their weights.
    mixed.load_state_dict({name: value for name, value in transformer.state_dict().items() if name in own})
    return transformer, mixed


@EVERY_FLAG
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_logits_and_gradients_are_those_of_fairseqs_transformer(flags, left):
    source, target = sentences(9, 3, 5, left=left), sentences(4, 6, 2, seed=2)
    outs, gradients = [], []
    for model in pair(**flags):
        torch.manual_seed(0)
        out = model(source, source.ne(PAD).sum(1), as_prefix(target))[0]
        F.cross_entropy(out.flatten(0, 1), target.flatten(), ignore_index=PAD).backward()
        outs.append(out)
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(outs[1], outs[0])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_translations_and_alignments_are_those_of_fairseqs_transformer():
    source = sentences(9, 3, 5, left=True)
    found = []
    for model in pair():
        model.eval().make_generation_fast_(need_attn=True)
        generator = SequenceGenerator([model], translation_task().target_dictionary, beam_size=3, max_len_b=12)
        sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
        found.append([best for beam in generator.generate([model], sample) for best in beam])
    for theirs, ours in zip(*found, strict=True):
        assert ours["tokens"].equal(theirs["tokens"])
        for name in ("positional_scores", "attention"):
            torch.testing.assert_close(ours[name], theirs[name])
