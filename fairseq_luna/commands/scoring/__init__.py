"""Reading translations, and scoring them."""

SAMPLES = 1000  # of the bootstrap
SEED = 12345  # sacreBLEU's own
USUAL = "13a"  # sacreBLEU's tokenizer for text with spaces between words
# Those that --tokenize offers, by sacreBLEU's names. char and flores also cut text without spaces.
TOKENIZERS = (USUAL, "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "none")
