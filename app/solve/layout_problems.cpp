// The layout problems of `troupe solve`: profile-batch and layout.

#include "app/solve/layout_problems.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/nearest_word.hpp"
#include "scheduler/cost/profile_batch.hpp"
#include "scheduler/layout/layout.hpp"

namespace troupe::app {

namespace {

using Clock = std::chrono::steady_clock;
using scheduler::LayoutInput;
using scheduler::LayoutModule;
using scheduler::LayoutObjective;
using scheduler::Placement;

constexpr double kMaxMs = 1e12;
constexpr double kMaxBytes = 1e18;
constexpr std::int64_t kMaxCount = 1'000'000;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

std::vector<std::int32_t> degrees(Reader& in, const std::string& key) {
  if (!in.has(key)) return {1};
  std::vector<std::int32_t> list;
  for (const auto degree : in.integers(key, 1, kMaxCount))
    list.push_back(static_cast<std::int32_t>(degree));
  return list;
}

/// Reads one input of `layout`.
class LayoutReader {
 public:
  explicit LayoutReader(const Json& input) : in_(input, "input") {}

  /// Once read: whether any module says what of it is in host memory.
  bool tells_moved() const { return tells_moved_; }

  Result<LayoutInput> read() {
    in_.only({"modules", "samples", "devices", "devices_per_node", "device_memory_bytes",
              "global_batch", "microbatch_sizes", "link", "placement", "objective", "seed",
              "update_gigabytes_per_s", "counts_rows"});
    read_modules();
    if (in_.ok()) read_samples();
    result_.devices = static_cast<std::int32_t>(in_.integer("devices", 1, kMaxCount));
    result_.devices_per_node =
        static_cast<std::int32_t>(in_.integer("devices_per_node", 1, kMaxCount));
    result_.device_memory_bytes = in_.number("device_memory_bytes", 0, kMaxBytes);
    result_.global_batch = in_.integer("global_batch", 1, INT32_MAX);
    result_.microbatch_sizes = in_.integers("microbatch_sizes", 1, INT32_MAX);
    result_.seed = static_cast<std::uint64_t>(in_.integer_or("seed", 0, 0, INT64_MAX));
    result_.update_gigabytes_per_s = in_.number_or("update_gigabytes_per_s", 0, 0, 1e9);
    read_link();
    const std::string placement = in_.text_or("placement", "disjoint");
    if (placement != "disjoint" && placement != "shared")
      in_.fail("placement", "expected \"disjoint\" or \"shared\", found '" + placement + "'");
    result_.placement = placement == "shared" ? Placement::shared : Placement::disjoint;
    result_.counts_rows = in_.boolean_or("counts_rows", false);
    const std::string objective = in_.text_or("objective", "entrain");
    if (objective != "entrain" && objective != "dflop")
      in_.fail("objective", "expected \"entrain\" or \"dflop\", found '" + objective + "'");
    result_.objective = objective == "dflop" ? LayoutObjective::dflop : LayoutObjective::entrain;
    if (!in_.ok()) return in_.error();
    return std::move(result_);
  }

 private:
  void read_modules() {
    const auto count = in_.array("modules").size();
    for (std::size_t m = 0; m < count && in_.ok(); ++m) {
      Reader module = in_.element("modules", m);
      names_.push_back(module.text("name"));
      in_.absorb(module);
    }
    for (std::size_t m = 0; m < count && in_.ok(); ++m) read_module(m);
  }

  void read_module(std::size_t m) {
    Reader in = in_.element("modules", m);
    in.only({"name", "next", "freeze", "layers", "state_bytes", "valid_tp", "valid_cp", "speedup",
             "gradient_bytes", "offloaded_share", "leaving_bytes"});
    LayoutModule module;
    module.name = names_[m];
    if (std::count(names_.begin(), names_.end(), module.name) > 1)
      in.fail("name", "two modules are called '" + module.name + "'");
    if (in.has("next"))
      for (const auto& next : in.array("next"))
        module.next.push_back(
            index_of(in, "next", next.is_string() ? next.get<std::string>() : next.dump()));
    module.freeze = in.boolean_or("freeze", false);
    module.layers = static_cast<std::int32_t>(in.integer("layers", 1, kMaxCount));
    module.state_bytes = in.number("state_bytes", 0, kMaxBytes);
    module.gradient_bytes = in.number_or("gradient_bytes", 0, 0, kMaxBytes);
    read_moved(in, module);
    module.valid_tp = degrees(in, "valid_tp");
    module.valid_cp = degrees(in, "valid_cp");
    if (in.has("speedup")) {
      const Json& speedups = in.object("speedup");
      Reader values(speedups, "input.modules[" + std::to_string(m) + "].speedup");
      for (const auto& [key, value] : speedups.items()) {
        int tp = 0;
        int cp = 0;
        int end = 0;
        if (std::sscanf(key.c_str(), "%d,%d%n", &tp, &cp, &end) != 2 ||
            end != static_cast<int>(key.size()))
          values.fail(key, "expected degrees as \"tp,cp\"");
        else
          module.speedup[{tp, cp}] = values.number(key, 1e-9, 1e9);
      }
      in.absorb(values);
    }
    in_.absorb(in);
    result_.modules.push_back(std::move(module));
  }

  /// What of a module is in host memory while the llm computes.
  void read_moved(Reader& in, LayoutModule& module) {
    module.offloaded_share = in.number_or("offloaded_share", 0, 0, 1);
    module.leaving_bytes = in.number_or("leaving_bytes", 0, 0, kMaxBytes);
    tells_moved_ = tells_moved_ || in.has("offloaded_share") || in.has("leaving_bytes");
    const auto bytes = [](double value) {
      return std::to_string(static_cast<std::int64_t>(value));
    };
    if (module.leaving_bytes > module.state_bytes)
      in.fail("leaving_bytes",
              "parameters that leave are part of state_bytes, and " + bytes(module.leaving_bytes) +
                  " are more than its " + bytes(module.state_bytes),
              "nearest choice: " + bytes(module.state_bytes));
    if (!module.next.empty()) return;
    for (const auto& [key, value] : {std::pair("offloaded_share", module.offloaded_share),
                                     std::pair("leaving_bytes", module.leaving_bytes)})
      if (value > 0)
        in.fail(key,
                "'" + module.name +
                    "' has no next, so it is the llm, which computes while others are in host "
                    "memory",
                "leave it out here, or name in next who takes the output of '" + module.name + "'");
  }

  std::int32_t index_of(Reader& where, const std::string& key, const std::string& name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return static_cast<std::int32_t>(found - names_.begin());
    where.fail(key, "there is no module '" + name + "'", name_fix(name, names_));
    return 0;
  }

  void read_samples() {
    const auto count = in_.array("samples").size();
    for (std::size_t s = 0; s < count && in_.ok(); ++s) {
      Reader sample = in_.element("samples", s);
      sample.only(names_);
      std::vector<scheduler::ModuleSample> modules(names_.size());
      for (std::size_t m = 0; m < names_.size() && sample.ok(); ++m) {
        if (!sample.has(names_[m])) continue;  // Not in this sample: no work.
        Reader in(sample.object(names_[m]),
                  "input.samples[" + std::to_string(s) + "]." + names_[m]);
        modules[m] = {in.number("forward_ms", 0, kMaxMs), in.number("backward_ms", 0, kMaxMs),
                      in.number_or("activation_bytes", 0, 0, kMaxBytes),
                      in.number_or("boundary_bytes", 0, 0, kMaxBytes)};
        sample.absorb(in);
      }
      in_.absorb(sample);
      result_.samples.push_back(std::move(modules));
    }
  }

  void read_link() {
    if (!in_.has("link")) return;
    Reader link(in_.object("link"), "input.link");
    link.only({"node_gigabytes_per_s", "network_gigabytes_per_s"});
    result_.node_gigabytes_per_s = link.number_or("node_gigabytes_per_s", 0, 0, 1e9);
    result_.network_gigabytes_per_s = link.number_or("network_gigabytes_per_s", 0, 0, 1e9);
    in_.absorb(link);
  }

  Reader in_;
  LayoutInput result_;
  std::vector<std::string> names_;
  bool tells_moved_ = false;
};

Result<Json> solve_layout(const Json& input) {
  LayoutReader reader(input);
  auto read = reader.read();
  if (!read.ok()) return read.error();
  const auto begin = Clock::now();
  const auto choice = scheduler::search_layout(read.value());
  if (!choice.ok()) return choice.error();
  const double compute_ms = ms_since(begin);
  Json layouts = Json::object();
  Json memory = Json::object();
  Json host_memory = Json::object();
  for (std::size_t m = 0; m < choice.value().modules.size(); ++m) {
    const auto& layout = choice.value().modules[m];
    const auto& name = read.value().modules[m].name;
    layouts[name] = {{"tp", layout.tp},
                     {"cp", layout.cp},
                     {"pp", layout.pp},
                     {"dp", layout.dp},
                     {"cuts", layout.cuts}};
    memory[name] = layout.memory_bytes;
    host_memory[name] = layout.host_memory_bytes;
  }
  Json output{{"layouts", std::move(layouts)},
              {"microbatch_size", choice.value().microbatch_size},
              {"expected_step_ms", choice.value().expected_step_ms},
              {"memory_bytes", std::move(memory)}};
  if (reader.tells_moved()) output["host_memory_bytes"] = std::move(host_memory);
  output["evaluated"] = choice.value().evaluated;
  output["compute_ms"] = compute_ms;
  return output;
}

Result<Json> solve_profile_batch(const Json& input) {
  Reader in(input, "input");
  in.only({"samples", "devices", "dp", "alpha", "p_error", "first_size", "seed"});
  scheduler::ProfileBatchInput batch;
  std::vector<std::string> names;
  std::map<std::string, std::size_t> index;
  const auto& samples = in.array("samples");
  for (const auto& sample : samples)
    if (sample.is_object())
      for (const auto& [name, ms] : sample.items())
        if (index.emplace(name, names.size()).second) names.push_back(name);
  for (std::size_t s = 0; s < samples.size() && in.ok(); ++s) {
    Reader sample = in.element("samples", s);
    std::vector<double> work(names.size());
    for (std::size_t m = 0; m < names.size(); ++m)
      work[m] = sample.number_or(names[m], 0, 0, kMaxMs);
    in.absorb(sample);
    batch.samples.push_back(std::move(work));
  }
  batch.devices = static_cast<std::int32_t>(in.integer("devices", 1, kMaxCount));
  batch.dp = static_cast<std::int32_t>(in.integer_or("dp", 1, 1, kMaxCount));
  batch.alpha = in.number_or("alpha", 0.05, 1e-12, 1 - 1e-12);
  batch.p_error = in.number_or("p_error", 0.05, 1e-4, 1 - 1e-12);
  batch.first_size = in.integer_or("first_size", 1, 1, 1 << 22);
  batch.seed = static_cast<std::uint64_t>(in.integer_or("seed", 0, 0, INT64_MAX));
  if (!in.ok()) return in.error();
  const auto begin = Clock::now();
  const auto found = scheduler::profile_batch(batch);
  if (!found.ok()) return found.error();
  const double compute_ms = ms_since(begin);
  Json allocation = Json::object();
  for (std::size_t m = 0; m < names.size(); ++m) allocation[names[m]] = found.value().allocation[m];
  return Json{{"b_min", found.value().b_min},
              {"trials", found.value().trials},
              {"allocation", std::move(allocation)},
              {"compute_ms", compute_ms}};
}

const char* const kProfileBatchSchema = R"({
  "samples": [{module: ms >= 0}...] (a module left out: 0),
  "devices": integer >= 1, "dp"?: integer that divides it (default 1),
  "alpha"?: in (0, 1) (default 0.05; 1 - confidence),
  "p_error"?: in [0.0001, 1) (default 0.05),
  "first_size"?: samples >= 1 (default 1), "seed"?: integer >= 0 (default 0)
})";

const char* const kLayoutSchema = R"({
  "modules": [{"name": string, "next"?: [module names] (the llm has none), "freeze"?: bool,
               "layers": integer >= 1, "state_bytes": bytes of the whole module,
               "valid_tp"?: [degrees] (default [1]), "valid_cp"?: [degrees] (default [1]),
               "speedup"?: {"tp,cp": factor over one device} (default tp x cp),
               "gradient_bytes"?: summed over its replicas in every step (default 0),
               "offloaded_share"?: of activations, 0 to 1 (default 0),
               "leaving_bytes"?: of state_bytes, parameters (default 0)}...]
             (what is in host memory while the llm computes, with shared placement; not of the
              llm. The time of copies belongs into forward_ms and backward_ms),
  "samples": [{module: {"forward_ms": ms on one device, "backward_ms": ms as it is trained,
                        "activation_bytes"?: bytes, "boundary_bytes"?: bytes}}...]
             (a module left out: no work),
  "devices": integer >= 1, "devices_per_node": integer >= 1, "device_memory_bytes": bytes,
  "global_batch": samples, "microbatch_sizes": [samples, of the llm],
  "link"?: {"node_gigabytes_per_s", "network_gigabytes_per_s"} (0 or left out: no cost),
  "update_gigabytes_per_s"?: state of modules with gradients (0 or left out: no cost),
  "placement"?: "disjoint" | "shared" (default disjoint),
  "counts_rows"?: with shared placement, rows that wait for the llm take room too (default false),
  "objective"?: "entrain" | "dflop" (default entrain), "seed"?: integer >= 0 (default 0)
})";

}  // namespace

std::vector<Problem> layout_problems() {
  return {
      {"profile-batch", "finds how many samples a stable profile needs (Entrain, algorithm 2)",
       kProfileBatchSchema, solve_profile_batch},
      {"layout", "finds tp, cp, pp and dp of every module (Entrain, DFLOP)", kLayoutSchema,
       solve_layout},
  };
}

}  // namespace troupe::app
