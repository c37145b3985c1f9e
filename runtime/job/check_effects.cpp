#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "models/family/registry.hpp"
#include "runtime/job/check_job.hpp"
#include "runtime/policies/registry.hpp"
#include "runtime/vocabulary/route.hpp"

namespace troupe::job {

namespace {

using std::to_string;

bool has_encoder(const Job& job, Medium medium) {
  return std::any_of(job.modules.begin(), job.modules.end(), [&](const auto& module) {
    return models::media_input(module).medium == medium;
  });
}

/// Whether limits of pixels decide how large some encoder takes pictures.
bool resizes_by_area(const Job& job) {
  return std::any_of(job.modules.begin(), job.modules.end(), [](const auto& module) {
    const auto media = models::media_input(module);
    return media.medium == Medium::image && !media.vision.resize.is_fixed();
  });
}

bool holds(const HandStage& stage, const std::string& module) {
  return std::any_of(stage.runs.begin(), stage.runs.end(),
                     [&](const auto& run) { return run.module == module; });
}

/// A degree of the stages that hold layers of a module, the pinned one if any has it; 1: none does.
std::int32_t degree_of(const HandLayout& layout, const std::string& module,
                       std::int32_t HandStage::*degree, std::optional<std::int32_t> pin) {
  std::optional<std::int32_t> found;
  for (const HandStage* stage : layout.all_stages())
    if (holds(*stage, module) && (!found || found != pin)) found = stage->*degree;
  return found.value_or(1);
}

/// Stages of a pipeline that hold layers of a module; one that no stage names rides along.
std::int32_t stages_with(const std::vector<HandStage>& stages, const std::string& module) {
  const auto count = std::count_if(stages.begin(), stages.end(),
                                   [&](const auto& stage) { return holds(stage, module); });
  return static_cast<std::int32_t>(std::max<std::ptrdiff_t>(count, 1));
}

/// Pins tell the planner what to keep, and a layout by hand leaves it nothing to choose. One that
/// says what the layout is anyway does no harm.
void warn_of_pins(const Parallel& parallel, Findings& findings) {
  if (parallel.layout.empty()) return;
  const std::string form = parallel.layout.pipelines.empty() ? "replicas" : "pipelines";
  for (const auto& [name, pins] : parallel.modules) {
    const auto warn = [&, &name = name](const char* key, std::optional<std::int32_t> pin,
                                        std::int32_t actual) {
      if (!pin || *pin == actual) return;
      const std::string path = "parallel." + name + "." + key;
      findings.warn_at(
          path,
          path + " = " + to_string(*pin) + " has no effect: parallel." + form +
              ", the layout by hand, has " + to_string(actual),
          "remove it, or the " + form + " (on the command line parallel." + form + "=[])");
    };
    warn("tp", pins.tp, degree_of(parallel.layout, name, &HandStage::tp, pins.tp));
    warn("cp", pins.cp, degree_of(parallel.layout, name, &HandStage::cp, pins.cp));
    const auto copies = parallel.layout.copies_of(name);
    warn("dp", pins.dp, static_cast<std::int32_t>(copies.size()));
    std::int32_t stages = 0;
    for (const auto* copy : copies)
      if (stages == 0 || pins.pp == stages) stages = stages_with(*copy, name);
    warn("pp", pins.pp, stages);
  }
}

void warn_of_media(const Job& job, Findings& findings) {
  const Data defaults;
  const auto& data = job.data;
  const auto warn = [&](const std::string& path, const std::string& why, const std::string& fix) {
    findings.warn_at(path, path + " has no effect: " + why, fix);
  };
  const std::string add_one = "remove it, or add an encoder of that kind to [modules]";
  if (!resizes_by_area(job)) {
    const bool sees = has_encoder(job, Medium::image);
    const std::string why = sees ? "every encoder of images takes them in a square of its own size"
                                 : "no module takes images";
    const std::string fix = sees ? "remove it: that size is the encoder's to say" : add_one;
    if (data.max_pixels != defaults.max_pixels) warn("data.max_pixels", why, fix);
    if (data.min_pixels != defaults.min_pixels) warn("data.min_pixels", why, fix);
  }
  if (!has_encoder(job, Medium::audio) && data.pad_audio)
    warn("data.pad_audio", "no module takes audio", add_one);
}

void warn_of_attention(const Job& job, Findings& findings) {
  if (has_encoder(job, Medium::image) || has_encoder(job, Medium::audio)) return;
  for (const auto& module : job.modules) {
    const std::string path = "modules." + module.name + ".attention";
    if (module.attention != AttentionRule::causal)
      findings.warn_at(path, path + " has no effect: no module takes media, and text is causal",
                       "remove it, or add an encoder to [modules]");
  }
}

void warn_of_frozen(const std::vector<ModuleConfig>& modules, Findings& findings) {
  for (const auto& module : modules) {
    const std::string path = "modules." + module.name + ".lr";
    if (module.freeze && module.lr)
      findings.warn_at(path, path + " has no effect: the module is frozen",
                       "remove it, or write freeze = false");
  }
}

void warn_of_balancing(const Job& job, Findings& findings) {
  const Balancer defaults;
  const auto& [dealing, exchange, items, policy, evaluations, correction] = job.balancer;
  if (dealing != defaults.dealing && llm_copies(job) == 1)
    findings.warn_at(
        "balancer.dealing",
        "balancer.dealing has no effect: the layout trains every sample in one pipeline",
        "remove it, or lay out more pipelines or llm replicas");
  if (exchange != defaults.exchange && !job.parallel.layout.empty() && encoder_copies(job) < 2)
    findings.warn_at("balancer.exchange",
                     "balancer.exchange has no effect: no encoder has two replicas to share work",
                     "remove it, or lay out more replicas of an encoder");
  if (items != defaults.items && exchange == "off")
    findings.warn_at("balancer.items", "balancer.items has no effect: balancer.exchange is off",
                     "remove it, or write balancer.exchange = \"per-phase\" or \"auto\"");
  if (job.train.microbatches == 1 && policy != defaults.policy)
    findings.warn_at("balancer.policy",
                     "balancer.policy has no effect: one microbatch per pipeline leaves nothing to "
                     "balance",
                     "raise train.microbatches");
  if (!policies::searches(policy) && evaluations != defaults.evaluations)
    findings.warn_at("balancer.evaluations",
                     "balancer.evaluations has no effect: \"" + policy + "\" does not search",
                     "remove it, or choose \"auto\" or another policy that searches");
}

/// A way of rows between modules that is no other way on a layout by hand.
void warn_of_boundary(const Job& job, Findings& findings) {
  const std::string& boundary = job.scheduler.boundary;
  const auto warn = [&](const std::string& why, const std::string& fix) {
    findings.warn_at("scheduler.boundary", "scheduler.boundary has no effect: " + why, fix);
  };
  if (boundary == Scheduler().boundary) return;
  if (job.modules.size() < 2) return warn("no module hands rows to another", "remove it");
  const HandLayout& layout = job.parallel.layout;
  if (layout.empty() || boundary == to_string(Route::direct)) return;
  const auto stages = layout.all_stages();
  if (std::any_of(stages.begin(), stages.end(),
                  [](const HandStage* stage) { return stage->tp * stage->cp > 1; }))
    return;
  if (boundary == to_string(Route::leader))
    warn("every stage has one device, so that \"leader\" is \"direct\"",
         "remove it, or lay out stages of several devices");
  else if (layout.replicas.empty() || encoder_copies(job) < 2)
    warn("no encoder has two replicas whose rows could be gathered",
         "remove it, or lay out more replicas of an encoder");
}

/// The smallest share of a batch that a pipeline gets.
void warn_of_microbatches(const Job& job, Findings& findings) {
  const std::int64_t copies = llm_copies(job);
  if (copies == 0) return;
  const auto own = job.train.global_batch_size / copies;
  if (own >= job.train.microbatches || own < 1) return;
  findings.warn_at("train.microbatches",
                   "train.microbatches " + to_string(job.train.microbatches) +
                       " is more than the " + to_string(own) + " samples that each of " +
                       to_string(copies) + " " + llm_copies_noun(job) + " gets of a batch",
                   "fewer are made: lower it to " + to_string(own) +
                       ", or raise "
                       "train.global_batch_size to " +
                       to_string(copies * job.train.microbatches));
}

void warn_of_warm_up(const Job& job, Findings& findings) {
  const auto& duration = job.train.duration;
  const auto warm_up = job.optimizer.warmup_steps;
  if (duration.unit != DurationUnit::steps || warm_up <= duration.amount) return;
  findings.warn_at("optimizer.warmup_steps",
                   "optimizer.warmup_steps " + to_string(warm_up) + " is more than train.steps " +
                       to_string(duration.amount) +
                       ": the learning rate never gets to optimizer.lr",
                   "lower it, or train longer");
}

void warn_of_offloading(const Job& job, Findings& findings) {
  if (job.scheduler.offload_encoders == "off") return;
  // Frozen ones have parameters all the same.
  const bool any_moves = job.scheduler.offloads("parameters");
  const bool moves = std::any_of(job.modules.begin(), job.modules.end(), [&](const auto& module) {
    return module.kind != ModuleKind::llm && (any_moves || !module.freeze);
  });
  if (!moves)
    findings.warn_at("scheduler.offload_encoders",
                     "scheduler.offload_encoders has no effect: no encoder or projector trains, so "
                     "that there is nothing to move",
                     "remove it, or train one: freeze = false");
}

/// What a job gives up of its bits, and what it keeps of them all the same.
void warn_of_bits(const Job& job, Findings& findings) {
  if (job.train.deterministic) return;
  if (job.cluster.device == "cpu")
    findings.warn_at("train.deterministic",
                     "train.deterministic = false has no effect: on CPUs every operator has one "
                     "order",
                     "remove it, or train with cluster.device = \"cuda\"");
  else if (job.cluster.sums == "nccl-chain")
    findings.warn_at("cluster.sums",
                     "cluster.sums = \"nccl-chain\" is in vain: it adds up in a fixed order what "
                     "train.deterministic = false lets differ from run to run",
                     "write \"nccl\", which is free to add up as is fastest, or leave "
                     "train.deterministic out");
}

/// A layout by hand says which nodes work, and nobody takes work away from them to have one spare.
void warn_of_spares(const Job& job, Findings& findings) {
  const HandLayout& layout = job.parallel.layout;
  if (job.cluster.spares == 0 || layout.empty()) return;
  std::set<std::int32_t> working;
  for (const HandStage* stage : layout.all_stages()) working.insert(stage->node);
  const std::int64_t left = job.cluster.nodes - std::ssize(working);
  if (left >= job.cluster.spares) return;
  const std::string form = layout.pipelines.empty() ? "replicas" : "pipelines";
  findings.warn_at(
      "cluster.spares",
      "cluster.spares = " + to_string(job.cluster.spares) +
          (left > 0 ? " keeps " + to_string(left) + " spare: " : " has no effect: ") + "parallel." +
          form + ", the layout by hand, gives work to " + to_string(std::ssize(working)) + " of " +
          to_string(job.cluster.nodes) + " nodes",
      "give fewer nodes stages, raise cluster.nodes, or lower it to " + to_string(left));
}

void warn_of_later_layouts(const Job& job, Findings& findings) {
  const auto& duration = job.train.duration;
  if (duration.unit != DurationUnit::steps) return;
  for (std::size_t i = 0; i < job.debug.layouts.size(); ++i) {
    const auto from = job.debug.layouts[i].step;
    const auto key = "debug.layouts[" + to_string(i) + "].from_step";
    if (from > duration.amount)
      findings.warn_at(key,
                       key + " " + to_string(from) + " is beyond train.steps " +
                           to_string(duration.amount) + ": the job never runs on it",
                       "lower it, or train longer");
  }
}

}  // namespace

void check_effects(const Job& job, Findings& findings) {
  warn_of_pins(job.parallel, findings);
  warn_of_frozen(job.modules, findings);
  warn_of_media(job, findings);
  warn_of_attention(job, findings);
  warn_of_balancing(job, findings);
  warn_of_boundary(job, findings);
  warn_of_microbatches(job, findings);
  warn_of_warm_up(job, findings);
  warn_of_offloading(job, findings);
  warn_of_bits(job, findings);
  warn_of_spares(job, findings);
  warn_of_later_layouts(job, findings);
}

}  // namespace troupe::job
