"""fairseq's transformer, read from a checkpoint, encodes padded sentences in evaluation."""

import torch

from support import build_model, sentences


def test_padded_sentences_are_encoded_as_alone():
    trained = build_model("transformer", encoder_normalize_before=False)
    model = build_model("transformer", encoder_normalize_before=False).eval()  # never trained in this process
    model.load_state_dict(trained.state_dict())
    lengths = (7, 4, 2)
    tokens = sentences(*lengths, left=True)
    with torch.no_grad():
        together = model.encoder(tokens)["encoder_out"][0]
        for row, length in enumerate(lengths):
            alone = model.encoder(tokens[row : row + 1, -length:])["encoder_out"][0]
            torch.testing.assert_close(together[-length:, row], alone[:, 0], rtol=1e-5, atol=1e-5)
