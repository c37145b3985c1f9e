"""Cases of parity.py with several encoders of a medium: each takes every picture or sound, and their rows stand behind
one another in the text."""

from parity_layouts import LLM, LLM_CUT, by_replicas

# Patches of half the size, so that a picture is four times as many rows; and more bins of sound: no two encoders take the
# same input.
SECOND_VISION = [
    'modules.glasses={kind="encoder",family="qwen2-vl",next="glasses_projector",'
    "config={depth=2,embed_dim=8,num_heads=2,hidden_size=40,patch_size=7}}",
    'modules.glasses_projector={kind="projector",next="llm"}',
]
SECOND_AUDIO = [
    'modules.ears={kind="encoder",family="whisper",next="ears_projector",'
    "config={encoder_layers=1,d_model=8,encoder_attention_heads=2,encoder_ffn_dim=16,num_mel_bins=128}}",
    'modules.ears_projector={kind="projector",next="llm"}',
]

# Encoders of one medium on different nodes, so that each node prepares what its own encoder takes.
APART = [
    "parallel.pipelines=["
    '{stages=[{node=0,vision="all",ears="all"},{node=1,glasses="all",audio="all"},{node=1,llm="all"}]},'
    '{stages=[{node=2,vision="all",audio="all",glasses=[0,2]},{node=3,glasses=[2,4],ears="all",llm=[0,4]},{node=2,llm=[4,7]}]}]',
]
REPLICAS = by_replicas(
    ('"vision"', *['{node=N,vision="all"}'] * 2), ('"glasses"', *['{node=N,glasses="all"}'] * 3),
    ('"audio","ears"', '{node=N,audio="all",ears="all"}'), ('"llm"', LLM_CUT, LLM))

# name: overrides
CASES = {
    "encoders-twice": [*SECOND_VISION, *SECOND_AUDIO, *APART, "balancer.policy=deferral", "scheduler.schedule=split-1f1b"],
    "encoders-twice-replicas": [*SECOND_VISION, *SECOND_AUDIO, *REPLICAS, "modules.llm.attention=modality",
                                "balancer.exchange=per-phase", "balancer.policy=dflop", "scheduler.schedule=zero-bubble"],
}
CASES = {name: ["train.dtype=fp64", *overrides] for name, overrides in CASES.items()}
