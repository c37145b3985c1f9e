"""The oracle of a bf16 run: the fp32 reference, within what rounding explains.

bf16 has 8 bits of significand, so that one rounding changes a number by at most u = 2^-8 of it. In 2-norm a rounded tensor
is off by u/sqrt(3) at most where errors are spread evenly; u is taken, which leaves room for factors that enlarge them.

*Forward.* The rows of a layer are rounded after every operator: in a block of the models here some 12 times (two norms, the
projection to queries, keys and values, rotation, attention, its output, two sums, the feed-forward's two or three products
and its activation), its weights once each. Roundings are independent, so that their errors add as squares: behind L layers
rows are off by u sqrt(12 L).

*Backward.* The gradient of a layer's rows is a product of the gradient from above and of what the forward kept, each with
errors of its own: per layer 12 roundings of the gradient going down, and the 12 of each of the two forward values in its
products. A gradient that came back through L layers is off by u sqrt(3 x 12 L). Summing over microbatches and holders is
done in fp32 and adds nothing. The bound is on all gradients of a module together: a single bias, whose gradient is a sum
of thousands of rows that cancel, may be off by several times as much.

*Loss.* Mean of N > 500 tokens' losses. A token's loss moves with its logits, which are off by d = u sqrt(12 L) of their
size s (below 1 when training begins): by d s in random direction, which the mean makes d s / sqrt(N), and by (d s)^2 / 2
always in one. Relative to a loss of log(vocabulary) > 5 both are below u / 4.

*Master weights.* They are fp32: an update is added without loss. In the first steps AdamW moves an element by its learning
rate at most, whatever the gradient's size (its two averages, over other spans, and decay add less than a twentieth); where the
gradient is smaller than its error, the direction is chance. So after steps of rates r the two runs differ by no more than
2 x 1.05 sum(r) per element. What that means for learning shows in the losses of the later steps, which obey the same bound as
the first. The parameters in the file are the masters rounded once more: u of each.

A factor of two in the gradients is an error of 1. One microbatch of eight left out changes a module's gradients by its share
of the module's work: 0.09 to 0.35 in the job of parity.toml, where bounds are 0.06 to 0.09 and a right run has 0.005 to 0.05.
"""

import array
import math

from recorded_runs import read_safetensors

U = 2.0**-8
ROUNDINGS = 12  # Of the rows of one layer.


def read_tensors(path):
    """{name: numbers} of a file of fp32 or bf16 tensors."""
    tensors = {}
    for name, (dtype, raw) in read_safetensors(path).items():
        if dtype == "BF16":  # The upper half of an fp32.
            raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        elif dtype != "F32":
            raise ValueError(f"{path}: {name} is {dtype}")
        tensors[name] = array.array("f", raw)
    return tensors


def module_errors(path, oracle_path):
    """{module: 2-norm of the difference of all its tensors, over the 2-norm of the oracle's}."""
    found, wanted = read_tensors(path), read_tensors(oracle_path)
    if set(found) != set(wanted):
        raise ValueError(f"{path} and {oracle_path} hold other tensors: {sorted(set(found) ^ set(wanted))[:5]}")
    squares = {}
    for name, numbers in wanted.items():
        sums = squares.setdefault(name.partition(".")[0], [0.0, 0.0])
        for a, b in zip(found[name], numbers, strict=True):
            sums[0] += (a - b) ** 2
            sums[1] += b * b
    return {module: math.sqrt(difference / norm) if norm else math.inf for module, (difference, norm) in squares.items()}


def gradient_bound(layers):
    """Of a module whose gradients come back through so many layers."""
    return U * math.sqrt(3 * ROUNDINGS * layers)


def faults_of_gradients(path, oracle_path, layers):
    """What breaks the bound, and a line of figures. `layers`: {module: layers from its first to the loss}."""
    errors = module_errors(path, oracle_path)
    words = {module: f"{module} {error:.4f} of {gradient_bound(layers[module]):.4f}" for module, error in errors.items()}
    faults = [f"gradients of {word}" for module, word in words.items() if not errors[module] <= gradient_bound(layers[module])]
    return faults, ", ".join(words.values())


def faults_of_losses(losses, oracle_losses):
    """Steps whose loss is further from the oracle's than u / 4 of it."""
    if len(losses) != len(oracle_losses):
        return [f"{len(losses)} losses instead of {len(oracle_losses)}"]
    return [f"loss of step {step}: {a} instead of {b}" for step, (a, b) in enumerate(zip(losses, oracle_losses), 1)
            if not abs(a - b) <= U / 4 * b]


def faults_of_parameters(path, oracle_path, rates):
    """Elements that moved further apart than the learning rates (with decay) and one rounding allow."""
    found, wanted = read_tensors(path), read_tensors(oracle_path)
    reach = 2 * 1.05 * sum(rates)
    faults = []
    for name, numbers in wanted.items():
        over = max((abs(a - b) - U * abs(b) for a, b in zip(found[name], numbers, strict=True)), default=0)
        if not over <= reach:
            faults.append(f"parameter {name} is off by {over:.2e}, {len(rates)} steps reach {reach:.2e}")
    return faults
