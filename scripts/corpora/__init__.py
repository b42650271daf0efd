"""From published texts to data for fairseq: what the prepare_* commands share."""
