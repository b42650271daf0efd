"""Parts of ``fairseq-luna score``, and the constants that its flags name."""

SAMPLES = 1000  # default number of resampled tests of the bootstrap
SEED = 12345  # sacreBLEU's default
USUAL = "13a"  # sacreBLEU's tokenizer for text with spaces between words
# Values of --tokenize, by sacreBLEU's names. char and flores also segment text without spaces.
TOKENIZERS = (USUAL, "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200", "none")
