"""From published archives to a fairseq data-bin: the steps of the prepare_* commands."""
