"""From what fairseq-generate wrote to scores against the untouched reference."""
