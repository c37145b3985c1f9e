#include "runtime/job/key_meanings.hpp"

#include <algorithm>
#include <array>

namespace troupe::job {

namespace {

constexpr auto kMeanings = std::to_array<KeyMeaning>({
    {"extends",
     "Job files that this one changes: read before it, later ones win; tables merge, "
     "lists are replaced whole."},
    {"job.name", "What the run is called: letters, digits, -, _ and dots."},
    {"job.seed", "Of initial weights and of the order of the data."},
    {"job.run_dir", "Folder that everything is written to; relative to the current directory.",
     "runs/NAME OF THE JOB"},
    {"plugins.libraries",
     "Families, stages, policies, schedules, data formats and observers of your own, loaded on "
     "every node before modules are read (`troupe new`)."},

    {"modules.NAME.kind",
     "An encoder makes rows of pictures or sound, a projector takes them to the "
     "llm's width, a teacher reads the text for the llm's last layer. Exactly one module is the "
     "llm.",
     "none: must be given"},
    {"modules.NAME.family",
     "Which architecture; a projector is an mlp and an llm a llama unless it "
     "says otherwise.",
     "that of its kind; encoders and teachers must say"},
    {"modules.NAME.next", "The module that its rows go to.",
     "NAME_projector where there is one, else the llm"},
    {"modules.NAME.freeze",
     "Its parameters stay as they are. Gradients still pass through it to "
     "modules before it that learn."},
    {"modules.NAME.lr", "Peak learning rate of this module.", "optimizer.lr"},
    {"modules.NAME.initializer_range", "Standard deviation of initial weights."},
    {"modules.NAME.attention",
     "Of the llm. By modality: rows of a picture or sound see all of it and nothing else; text "
     "sees all that came before it."},
    {"modules.NAME.init",
     "Where its first weights come from: a run, a checkpoint, or a safetensors "
     "file.",
     "\"seed\": drawn by job.seed"},
    {"modules.NAME.hf", "Weights of Hugging Face: not there yet."},
    {"modules.NAME.config", "Sizes, under the names of the family's config.json."},

    {"parallel.mode", "Whether the planner chooses the layout, or it is written by hand.",
     "\"manual\" where a layout is given, else \"auto\""},
    {"parallel.pipelines",
     "Whole copies of the model, a table each: stages = [{node = 0, vision = "
     "\"all\", llm = [0, 3]}, ...]. A stage runs on one device of its node "
     "(device = 0), or on a grid: devices = [0, 1], tp = 2, cp = 1."},
    {"parallel.replicas",
     "Copies of one module group, a table each: modules = [\"llm\"], and stages "
     "as in pipelines. Groups may have different numbers of copies."},
    {"parallel.NAME.tp", "Tensor-parallel degree that the planner must give this module.",
     "it chooses"},
    {"parallel.NAME.cp", "Context-parallel degree that the planner must give this module.",
     "it chooses"},
    {"parallel.NAME.pp", "Stages that the planner must cut this module into.", "it chooses"},
    {"parallel.NAME.dp", "Replicas that the planner must give this module.", "it chooses"},

    {"data.max_pixels", "Of one picture; larger ones are made smaller."},
    {"data.min_pixels", "Of one picture; smaller ones are made larger."},
    {"data.max_seq_len",
     "Tokens of one sample, rows of media included; longer samples are left out."},
    {"data.max_bad_fraction", "Share of samples that cannot be used above which the job ends."},
    {"data.shuffle", "Another order in each epoch, by job.seed; false: that of the files."},
    {"data.prefetch", "Batches that are decoded ahead of training."},
    {"data.threads", "Decoding threads of each node."},
    {"data.pad_audio", "Pad every window of sound to 30 s, as Whisper's own training does."},
    {"data.read_timeout_s",
     "A file from which nothing comes for so long ends the job, with its name."},
    {"data.index",
     "Where lengths of samples are kept that were read once: auto (`lengths` beside the run "
     "folder), "
     "off, or a folder."},
    {"data.sources", "What is trained on: a table for each list of samples, at least one."},
    {"data.sources[].format",
     "How it is written: LLaVA's lists of conversations (runtime/data/README.md), or a format of a "
     "plug-in (`troupe new format`)."},
    {"data.sources[].json", "The list of samples.", "none: must be given"},
    {"data.sources[].media", "Folder that the paths of pictures and sounds start from.",
     "the folder of json"},
    {"data.sources[].nodes",
     "Numbers of the nodes that see it. They decode its samples, and send what other nodes need of "
     "them. Its list must also be where `troupe train` runs.",
     "all nodes"},

    {"train.steps", "Optimizer steps. Of steps, epochs, samples and tokens exactly one is given.",
     "none"},
    {"train.epochs", "Times that every sample is trained.", "none"},
    {"train.samples", "Ends with the step that reaches so many.", "none"},
    {"train.tokens",
     "Tokens of the llm, rows of media included; ends with the step that reaches so "
     "many.",
     "none"},
    {"train.global_batch_size", "Samples of a step, over all copies of the model."},
    {"train.microbatches",
     "Microbatches of each llm replica in a step (a pipeline has one); some policies make fewer."},
    {"train.dtype", "Of parameters, activations and gradients."},
    {"train.recompute",
     "Whether layers keep their input alone and run forward again in their backward: a fraction of "
     "the memory for activations, for about a third more computing."},
    {"train.deterministic",
     "On accelerators LibTorch takes operators alone that give the same bits each time: one that "
     "has no fixed order ends the job with its name and layers, and FlashAttention's backward "
     "(bf16 on GPUs) takes its slower form. false: any operators, and bits may differ from run to "
     "run. In which order devices add up gradients cluster.sums says."},
    {"train.dump_gradients", "Write the gradients of step 1 to gradients/ of the run folder."},
    {"train.max_nonfinite_in_a_row",
     "Steps whose loss or gradient is no number, and which are "
     "skipped, until the job ends."},
    {"train.stall_timeout_s",
     "A step that takes longer, and ten times the longest one before it, ends the job; where a "
     "stage does not return, and the job bears a loss, that costs its node, once. A family, "
     "policy, schedule or format of a plug-in that does not return for so long ends the job, and a "
     "layer ends a profile or a reference."},

    {"optimizer.lr", "AdamW's peak learning rate, after the warm-up."},
    {"optimizer.min_lr", "Where the cosine from lr ends, at the last step."},
    {"optimizer.warmup_steps", "Steps over which the rate rises to lr."},
    {"optimizer.weight_decay", "Of tensors of two or more dimensions alone."},
    {"optimizer.betas", "Decay of the averages of gradient and squared gradient."},
    {"optimizer.eps", "Added to the root of the averaged squared gradient."},
    {"optimizer.max_grad_norm",
     "Gradients are scaled down to this norm, over all parameters; 0: they "
     "are not."},

    {"scheduler.schedule", "In which order devices work."},
    {"scheduler.profile", "A file that `troupe profile` wrote.",
     "the newest that fits, or measured at the start"},
    {"scheduler.max_in_flight",
     "Microbatches that a stage may hold at once; 0: as the schedule "
     "likes."},
    {"scheduler.offload_encoders",
     "What encoders have in host memory while nothing needs it: activations (three-phase, dip), "
     "which go there behind a forward and come back before the backward; moments and masters, "
     "which come for the update alone; both; parameters (three-phase, dip), which are there while "
     "the llm computes; all; or nothing."},
    {"scheduler.boundary",
     "How rows go from encoders to the llm: from all ranks to all that need them, from one rank to "
     "one and on inside its stage, or gathered on one device and scattered; auto: what is "
     "predicted to take least."},

    {"balancer.dealing",
     "How samples are shared out between copies of the model: by predicted work, "
     "or so many to each as its speed asks for."},
    {"balancer.exchange",
     "Whether encoders share the media of a batch out among all their replicas, "
     "whoever trains the sample; auto: where the step is predicted to be no "
     "longer."},
    {"balancer.items",
     "What an exchange moves: whole samples, or ranges of a sample's pictures and sounds, so that "
     "several replicas share one that has many."},
    {"balancer.policy",
     "Which samples run together in a microbatch; auto tries several and takes the "
     "shortest predicted step (balancer/README.md)."},
    {"balancer.evaluations",
     "Plans that auto may try per pipeline and step, and thousands of exchanges that a search "
     "may."},
    {"balancer.adaptive_correction",
     "Correct the profile's predictions by times measured while "
     "training."},

    {"checkpoint.every_steps", "Save after so many steps; 0: not by steps."},
    {"checkpoint.every_minutes", "Save after so many minutes; 0: not by time."},
    {"checkpoint.keep_last", "Older checkpoints are removed; 0: all are kept."},
    {"checkpoint.dir", "Where every node can write.", "checkpoints/ of the run folder"},
    {"checkpoint.timeout_s", "A save that takes longer is given up; training goes on."},

    {"cluster.local_nodes", "Node processes that `troupe train` starts on this machine.",
     "1, or 0 where nodes is given"},
    {"cluster.nodes", "Nodes of the whole job; those that are not local join by `troupe node`.",
     "local_nodes"},
    {"cluster.devices_per_node", "Logical devices of each node."},
    {"cluster.device",
     "What they are: cpu, cuda, or what a plug-in brings to LibTorch, by its name there."},
    {"cluster.threads_per_device", "Operator threads of a CPU device."},
    {"cluster.device_memory_gib", "What a device may use, for planning; 0: what the machine has."},
    {"cluster.device_tflops",
     "Peak of a device at train.dtype, for the share of it that training "
     "reaches; 0: not told."},
    {"cluster.fault_tolerance",
     "Nodes that may fail at once without loss: everything is held by one "
     "node more."},
    {"cluster.spares", "Nodes that stand by with a copy, and take the places of lost ones."},
    {"cluster.min_nodes",
     "After join_timeout_s the job begins with so many, and it goes on with so many; 0: it begins "
     "with all, and goes on with those that are left."},
    {"cluster.listen",
     "HOST:PORT where nodes join; port 0: any free one. An address that other "
     "machines reach needs a key."},
    {"cluster.key",
     "File made by `troupe key new`, which lets nodes in; or TROUPE_KEY holds the key.",
     "one made for the job, on the loopback alone"},
    {"cluster.data_interface", "Network interface for tensors, as eth1.", "UCX chooses"},
    {"cluster.transport", "What carries tensors between processes."},
    {"cluster.sums",
     "How gradients are added up over devices: by messages; nccl, where each has a GPU of its own, "
     "in NCCL's own order (train.dtype fp64: as a chain); nccl-chain, holder after holder, with "
     "the bits of messages; auto, nccl where all devices are GPUs of this machine that have the "
     "library, none shared, and it is predicted to be no slower, else messages (the log says "
     "why)."},
    {"cluster.rows",
     "How rows and their gradients go from stage to stage: by messages; nccl, where each device is "
     "a GPU of its own, by calls to NCCL between devices of one pipeline, the rest by messages; "
     "auto, nccl where all devices are GPUs of this machine that have the library, none shared, "
     "else messages (the log says why). Bits are the same."},
    {"cluster.sum_timeout_s",
     "How long a call to NCCL may take from a device's part on, of rows once both ends have begun; "
     "then the device counts as lost."},
    {"cluster.join_timeout_s",
     "Until all nodes are there; again until all are set up in a layout: a node that alone keeps "
     "it from coming up is lost then."},
    {"cluster.open_timeout_s",
     "How long a node that has joined may take to open its data and devices; a job that has not "
     "begun waits as long for it."},
    {"cluster.heartbeat_interval_s", "Between two signs of life of a node, or of the head."},
    {"cluster.heartbeat_timeout_s",
     "Silence after which a node, or the head, counts as lost. A message between two nodes may be "
     "on its way for twice as long, and for three of the longest step so far."},
    {"cluster.head_timeout_s",
     "How long nodes whose head is lost keep their state for another one; 0: not at all, but its "
     "own wait 20 times heartbeat_timeout_s for one that is only stopped (Ctrl-Z).",
     "60 where nodes of other machines take part, else 0"},
    {"cluster.stop_timeout_s", "From the word to end until processes are ended by force."},
    {"cluster.drain_timeout_s",
     "How long a node that alone was sent SIGTERM may take to give its state away and leave; less "
     "than what the scheduler lets pass before SIGKILL."},

    {"recovery.from_checkpoint",
     "Where the last copy of something was lost, begin again from the "
     "newest checkpoint, by itself; else what lives is saved, and the job ends (75)."},
    {"recovery.wait_for_nodes_s",
     "How long the job then, below cluster.min_nodes, or where no layout fits the nodes that are "
     "left or these would lose more samples, waits for nodes that join."},
    {"recovery.drain_slow", "A node at under half its usual speed for long leaves the job."},

    {"observe.metrics_listen",
     "HOST:PORT, or a port of the loopback, where Prometheus finds the "
     "run's figures.",
     "nowhere"},

    {"observe.observers", "Code of your own that sees what modules compute, as plug-ins have it."},
    {"observe.observers[].name", "Which one (`troupe new observer` writes one).",
     "none: must be given"},
    {"observe.observers[].module", "Of this module alone.", "all modules"},
    {"observe.observers[].rows", "It sees what a module's last layer gives to the next module."},
    {"observe.observers[].gradients", "It sees the gradients of that."},
    {"observe.observers[].losses", "It sees the loss of each sample."},
    {"observe.observers[].every_steps", "In steps that this divides."},
    {"observe.observers[].queue",
     "Parts of microbatches that may wait for it; others are dropped and counted."},
    {"observe.observers[].options", "Text for the observer alone.", "none"},

    {"debug.parameter_hashes",
     "After each step compare parameters and moments of all who hold the same. Where they differ "
     "the job ends, saved as more than half of the nodes have it."},
    {"debug.delayed_device_ms",
     "Work of a device completes up to so many milliseconds late, on a thread of its own, as on an "
     "accelerator: a test of whoever waits for it. CPUs alone."},
    {"debug.warm_up_bytes",
     "A node that joins takes over so many bytes of state during each step, however little there "
     "is, before it works.",
     "0: as fast as the network lets it, where that spares the others time"},
    {"debug.slow_shapes", "Work that is made slower, for tests of what reacts to it."},
    {"debug.slow_shapes[].module", "Whose forwards and backwards.", "none: must be given"},
    {"debug.slow_shapes[].min_rows", "From so many rows on."},
    {"debug.slow_shapes[].max_rows", "To so many rows, included."},
    {"debug.slow_shapes[].factor", "They take so many times as long."},
    {"debug.slow_shapes[].per_sample",
     "Rows of each sample count, not those of all that runs "
     "together."},
    {"debug.slow_shapes[].node", "On this node alone.", "all nodes"},
    {"debug.slow_shapes[].from_step", "From this step on."},
    {"debug.slow_shapes[].to_step", "To this step, included.", "0: to the end"},
    {"debug.layouts",
     "Layouts that the job changes to by itself: from_step, and pipelines or replicas "
     "as in [parallel]."},
    {"debug.layouts[].from_step", "The first step that runs on it.", "none: must be given"},
});

}  // namespace

std::span<const KeyMeaning> key_meanings() { return kMeanings; }

KeyMeaning meaning_of(std::string_view path) {
  const auto all = key_meanings();
  const auto found = std::ranges::find(all, path, &KeyMeaning::path);
  return found == all.end() ? KeyMeaning{} : *found;
}

}  // namespace troupe::job
