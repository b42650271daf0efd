"""Reading translations, and scoring them."""

SAMPLES = 1000  # of the bootstrap
SEED = 12345  # sacreBLEU's own
