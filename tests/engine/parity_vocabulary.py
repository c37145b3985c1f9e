"""A vocabulary whose logits do not fit into one chunk (runtime/vocabulary/logit_chunks.hpp): a pipeline's head cuts those of
its one microbatch, the reference has whole ones of each sample."""

import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from parity_matrix import PROJECTORS_ONLY
from recorded_runs import read_lines

VOCABULARY = 60000
# All samples of a step in one microbatch of one pipeline: more trained tokens than the 256 rows of a chunk.
ONE_PART = ["train.dtype=fp64", f"modules.llm.config.vocab_size={VOCABULARY}",
            "train.microbatches=1", "cluster.local_nodes=2",
            'parallel.pipelines=[{stages=[{node=0,vision="all",audio="all"},{node=1,llm="all"}]}]']
CASES = {
    "vocabulary-zero-bubble": [*ONE_PART, "scheduler.schedule=zero-bubble"],
    "vocabulary-tied": [*ONE_PART, "modules.llm.config.tie_word_embeddings=true"],
    "vocabulary-frozen": [*ONE_PART, *PROJECTORS_ONLY],
}


def faults_of_logits(run):
    """Whether a device held the logits of a microbatch."""
    faults = []
    for line in read_lines(run / "metrics.jsonl"):
        logits = line["trained_tokens"] * VOCABULARY * 8
        if line["trained_tokens"] <= 256:
            faults.append(f"step {line['step']} has {line['trained_tokens']} trained tokens, which fit into a chunk")
        if line["activation_bytes"] > logits / 2:
            faults.append(f"step {line['step']} held {line['activation_bytes'] / 1e6:.0f} MB, of {logits / 1e6:.0f} MB of logits")
    return faults
