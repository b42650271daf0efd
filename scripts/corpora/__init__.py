"""From published archives to a fairseq data-bin: what the prepare_* scripts share, one idea per file."""
