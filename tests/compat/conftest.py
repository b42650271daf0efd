from fairseq_luna import compat

compat.apply_patches()
