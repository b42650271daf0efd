"""Compile the Triton kernels for GPUs that are not there, in a process of its own, and print what each takes.

A line of JSON for each kernel: its name, GPU and dtype, registers of a thread, bytes of local memory, where spilled
registers stand, and bytes of shared memory.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fairseq_luna.ops.luna_causal_attention import triton_kernels as kernels

# Compute capability and dtype, and the choice of triton_form.launch_options there.
IN_FP32 = {"C": 16, "PRECISION": "tf32x3"}
PROGRAMS = {(80, dtype): {"C": 32, "PRECISION": "tf32"} for dtype in ("bf16", "fp16")}
PROGRAMS |= {(90, dtype): {"C": 64, "PRECISION": "tf32"} for dtype in ("bf16", "fp16")}
PROGRAMS |= {(80, "fp32"): IN_FP32, (90, "fp32"): IN_FP32}
# The paper's base model: 64 channels of a head and 32 slots; all that may be left out is there but dropout.
CONSTANTS = {"LP": 32, "DP": 64, "ACTIVATION": "softplus", "PADDED": True, "TIED": True, "P": 0.0}
CONSTANTS |= {"SLOTS": True, "HALF": True, "BLOCK": 32, "WIDTH": 64, "REVERSE": False}
WARPS = {"chunk_states": 4, "scan": 4, "outputs": 4, "query_gradients": 8, "key_gradients": 8}
POINTERS = {"padding": "*u8", **dict.fromkeys(("each", "slots", "states", "values", "x"), "*fp32")}
POINTERS |= dict.fromkeys(("unpacks", "dscores", "dkeys", "dvalues"), "*fp32")
OF_THE_DTYPE = ("q", "k", "v", "s", "y", "dy", "dq", "dk", "dv", "ds")
# Strides and sizes of fairseq's models are multiples of 16.
MULTIPLE = re.compile(r"[qkvsy][bht]|D|L|SIZE")


def compiled(name, dtype, capability):
    kernel = getattr(kernels, name)
    pointers = POINTERS | dict.fromkeys(OF_THE_DTYPE, f"*{dtype}")
    constants = CONSTANTS | PROGRAMS[capability, dtype]
    signature, values, attributes = {}, {}, {}
    for parameter in kernel.params:
        if parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            values[(parameter.num,)] = constants[parameter.name]
            continue
        signature[parameter.name] = pointers.get(parameter.name, "i32")
        if parameter.name in pointers or MULTIPLE.fullmatch(parameter.name):
            attributes[(parameter.num,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=values, attrs=attributes)
    return triton.compile(source, GPUTarget("cuda", capability, 32), options={"num_warps": WARPS[name]})


def usage(cubin):
    """Registers and local memory, which NVIDIA's tool reads."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [tool, "--dump-resource-usage", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", printed)}
    return {"registers": found["REG"], "local": found["STACK"] + found["LOCAL"]}


if __name__ == "__main__":
    for capability, dtype in PROGRAMS:
        for name in WARPS:
            made = compiled(name, dtype, capability)
            row = {"kernel": name, "capability": capability, "dtype": dtype}
            print(json.dumps(row | usage(made.asm["cubin"]) | {"shared": made.metadata.shared}), flush=True)
