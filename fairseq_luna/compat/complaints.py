"""What fairseq and torch say of bad input, and the one line that says it with the file or the flag.

Only what the input explains is here, known by its type, by the host's own words and, where those are not enough, by the
function that raised it. Where those words leave out what was read, it is looked up in that function.
"""

from pickle import UnpicklingError
from typing import NamedTuple


class Complaint(NamedTuple):
    """An error of type ``kind`` whose message begins with ``pattern``, and the ``line`` that says it.

    ``line`` is a format: ``{message}`` is the error's own first line, ``{0}`` the pattern's first group, and any other
    name a variable of ``function``, which raised the error itself, or through the host's own code if ``through``.
    """

    kind: type[BaseException] | tuple[type[BaseException], ...]
    pattern: str
    line: str = "{message}"
    function: str | None = None
    through: bool = False


_UNFIT = "its --arch, sizes or dictionaries are not the ones here, or it holds no weights"
_AGAIN = "run fairseq-preprocess again"

COMPLAINTS = (
    # fairseq's own lines that name the flag or the file already.
    Complaint(Exception, r"--\w"),
    Complaint(UnpicklingError, r".* was refused: it holds"),
    Complaint(Exception, r"Size of sample #.* --skip-invalid-size-inputs-valid-test"),
    Complaint(AssertionError, r"Optimizer does not match.*--reset-optimizer"),
    Complaint(Exception, r"Incorrect encoding detected in"),
    Complaint(Exception, r"AdaptiveLoss is not compatible with .*--ddp-backend"),
    Complaint(AssertionError, r"Must specify batch size either with --max-tokens or --batch-size"),
    # Checkpoints.
    Complaint(OSError, r"Model file not found: ?(.*)", "--path {0}: no such file"),
    Complaint(Exception, r"Cannot load model parameters from checkpoint (.*); please", f"{{0}} does not fit: {_UNFIT}"),
    Complaint(
        RuntimeError,
        r"Error\(s\) in loading state_dict",
        f"--path {{filename}} does not fit: {_UNFIT}",
        "load_model_ensemble_and_task",
        through=True,
    ),
    Complaint(KeyError, r"'model'", "{filename} is no checkpoint: it holds no weights", "load_model_ensemble_and_task"),
    Complaint(
        KeyError, r"\"'_name'\"", "model {model_type}: no such architecture is registered; see --arch", "build_model"
    ),
    Complaint(KeyError, r"'(\w+)'", "--{registry_name} {choice}: no such choice is registered", "build_x"),
    # Data.
    Complaint(
        FileNotFoundError,
        r"Dataset not found: (\S+) \((.*)\)",
        "{1} holds no split {0} of this pair of languages; see --train-subset, --valid-subset and --gen-subset",
    ),
    Complaint(
        Exception,
        r"Could not infer language pair",
        "{paths[0]} holds no binarised pair of languages: give the folder that fairseq-preprocess wrote",
        "setup_task",
    ),
    Complaint(
        Exception,
        r"The dataset is empty",
        "no sentence is short enough: raise --max-tokens, --max-source-positions or --max-target-positions",
    ),
    Complaint(
        AssertionError,
        r"Index file doesn't match",
        f"{{path}} is damaged, or written with another --dataset-impl: {_AGAIN}",
        "__init__|read_index",
    ),
    Complaint(ValueError, r"(offset|buffer).* buffer", f"{{self._path}}.bin is cut short: {_AGAIN}", "__getitem__"),
    Complaint(
        AssertionError,
        r"Source and target must contain the same number",
        f"{{data_path}} holds more sentences of one language than of the other in split {{split}}: {_AGAIN}",
        "load_langpair_dataset",
        through=True,
    ),
    Complaint(
        TypeError,
        r".*missing 1 required positional argument: 'prev_output_tokens'",
        f"no target side: --task and --arch do not go together, or the data-bin has none of --train-subset; {_AGAIN}",
    ),
    Complaint(
        ValueError,
        r"Incorrect dictionary format",
        "{f.name}: a line is not a word and its count",
        "add_from_file",
    ),
    Complaint(UnicodeDecodeError, r"(.*)", "--input {input}: not UTF-8 ({0})", "buffered_read", through=True),
    # Flags.
    Complaint(
        ValueError,
        r"num_workers option should be non-negative",
        "--num-workers {num_workers}: must be 0 or more",
        "__init__",
    ),
    Complaint(ValueError, r"(optimizer|lr_scheduler|criterion) is required", "--{0} is required"),
    Complaint(
        AssertionError,
        r"cannot specify cutoff larger than vocab",
        "--adaptive-softmax-cutoff {cutoff}: must be below the number of words, {vocab_size}",
        "__init__",
    ),
    Complaint(
        AssertionError,
        r"Input features must be a multiple of block sizes",
        "--quant-noise-pq-block-size {block_size}: must divide the inputs of every layer for --quant-noise-pq",
        "quant_noise",
    ),
    Complaint(
        (AssertionError, RuntimeError),
        r"(Torch not compiled with CUDA|Found no NVIDIA driver)",
        "--quant-noise-scalar: this noise of fairseq's needs a GPU, and there is none; --quant-noise-pq does not",
        r"emulate_int8_\w+",
        through=True,
    ),
    Complaint(
        KeyError,
        r".*LearnedPositionalEmbedding",
        "--quant-noise-scalar: does not know learned positions (--encoder-learned-pos, --decoder-learned-pos)",
        "quantize_model_",
    ),
    Complaint(
        RuntimeError,
        r"The expanded size of the tensor",
        "--encoder-embed-path or --decoder-embed-path {path}: its vectors are not of the embeddings' size, {embed_dim}",
        "build_embedding",
        through=True,
    ),
    Complaint(ValueError, r"Cannot use a fixed learning rate schedule", "--lr {cfg.lr}: {message}", "__init__"),
    Complaint(
        AssertionError,
        r"min_len cannot be larger",
        "--min-len {self.min_len}: above the longest translation, {max_len}; see --max-len-a and --max-len-b",
        "_generate",
    ),
    Complaint(NotImplementedError, r"Unknown post_process option: (.*)", "--remove-bpe {0}: no such symbol"),
    Complaint(
        ValueError, r"DiverseBeamSearch requires --beam", "--diverse-beam-groups {self.num_groups}: {message}", "step"
    ),
    *(
        Complaint(
            (SyntaxError, ValueError),
            r".*<unknown>|malformed node",  # ast.literal_eval
            f"{flag}: must be a dictionary, such as {{{{'a': 1}}}}",
            function,
        )
        for flag, function in (
            ("--model-overrides {cfg.common_eval.model_overrides}", "main|_main"),
            ("--optimizer-overrides {cfg.optimizer_overrides}", "load_checkpoint"),
        )
    ),
    Complaint(
        (AssertionError, RuntimeError),
        r"(Torch not compiled with CUDA|Found no NVIDIA driver)",
        "--fp16 flattens the gradients on a GPU, and there is none: add --fp16-no-flatten-grads, or use --bf16",
        "build_fp32_params",
        through=True,
    ),
    Complaint(RuntimeError, r"chosen optimizer does not support flat params.*--fp16-no-flatten-grads"),
    Complaint(ImportError, r"Cannot find FullyShardedDataParallel", "--ddp-backend fully_sharded: {message}"),
    Complaint(ImportError, r"Please install the fairscale package", "--zero-sharding os: pip install fairscale"),
)
