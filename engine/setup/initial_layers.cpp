#include "engine/setup/initial_layers.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/files/file_reads.hpp"
#include "runtime/job/run_checkpoints.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "runtime/vocabulary/model_words.hpp"

namespace troupe::engine {

namespace {

constexpr std::size_t kNamesMax = 4;

std::string key_of(const ModuleConfig& module) { return "modules." + module.name + ".init"; }

const ModuleConfig& config_of(const JobSetup& setup, ModuleId id) {
  const std::string& name = setup.model.at(id).name;
  return *std::find_if(setup.modules().begin(), setup.modules().end(),
                       [&](const ModuleConfig& module) { return module.name == name; });
}

std::string listed(const std::vector<std::string>& names) {
  return joined_up_to(kNamesMax, names, "more");
}

/// The parameters that a module gives their first values.
std::vector<const ParameterInfo*> parameters_of(const JobSetup& setup, ModuleId module) {
  std::vector<const ParameterInfo*> own;
  for (const ParameterInfo& info : setup.parameters)
    if (info.uses.front().module == module) own.push_back(&info);
  return own;
}

/// Under which name a run has a parameter: under its own, or, of a teacher, as the run's llm.
std::string name_there(const ModuleConfig& module, const state::SavedValues& saved,
                       const std::string& name) {
  const auto& shapes = saved.shapes();
  if (module.kind != ModuleKind::teacher || shapes.contains(name)) return name;
  const std::string rest = name.substr(module.name.size());
  for (const auto& [other, shape] : shapes)
    if (other.ends_with(rest) && other.find('.') + rest.size() == other.size()) return other;
  return name;
}

std::filesystem::path below(const std::filesystem::path& path,
                            const std::filesystem::path& folder) {
  const auto real = [](const std::filesystem::path& at) {
    const files::ReadingFile waits(at, files::FileUse::write);
    std::error_code ignored;
    return std::filesystem::weakly_canonical(at, ignored);
  };
  return real(path).lexically_relative(real(folder));
}

/// A job that begins lays aside what older ones left where it writes.
std::vector<Error> laid_aside_problems(const job::Job& job, const ModuleConfig& module) {
  const bool in_run = lies_in(module.init, job.job.run_dir);
  const bool is_checkpoint =
      lies_in(module.init, job.checkpoint_dir()) &&
      below(module.init, job.checkpoint_dir()).begin()->string().starts_with("step-");
  if (!in_run && !is_checkpoint) return {};
  return {{Errc::invalid_argument,
           module.init + " lies in the folder that this job writes, and moves when it begins",
           key_of(module),
           std::string("give the job another ") + (in_run ? "job.run_dir" : "checkpoint.dir")}};
}

/// What of one module does not fit; nothing: all does.
std::vector<Error> problems_of(const JobSetup& setup, ModuleId id, const ModuleConfig& module) {
  const auto saved = state::SavedValues::open(module.init);
  if (!saved.ok()) {
    Error error = saved.error();
    error.message = error.where + ": " + error.message;
    error.where = key_of(module);
    return {error};
  }
  std::vector<std::string> missing, other;
  for (const ParameterInfo* info : parameters_of(setup, id)) {
    const auto found = saved.value().shapes().find(name_there(module, saved.value(), info->name));
    if (found == saved.value().shapes().end())
      missing.push_back(info->name);
    else if (found->second != info->shape)
      other.push_back(info->name + " is " + shape_text(found->second) + " there and " +
                      shape_text(info->shape) + " here");
  }
  std::vector<Error> problems;
  const std::string fix = "give the module the config that it was saved with, or leave init out";
  if (!missing.empty())
    problems.push_back(
        {Errc::invalid_argument, module.init + " lacks " + listed(missing), key_of(module), fix});
  if (!other.empty())
    problems.push_back(
        {Errc::invalid_argument, "shapes differ: " + listed(other), key_of(module), fix});
  return problems;
}

}  // namespace

Result<std::unique_ptr<models::Layer>> InitialLayers::make(LayerId id,
                                                           const models::LayerOptions& options) {
  const ModuleConfig& module = config_of(setup_, id.module);
  auto wanted = options;
  wanted.draws = options.draws && module.init.empty();
  auto layer = models::make_layer(module, setup_.modules(), id.layer, wanted);
  if (!layer.ok() || module.init.empty()) return layer;
  if (auto filled = fill(*layer.value(), module); !filled.ok()) return std::move(filled).error();
  return layer;
}

Status InitialLayers::fill(models::Layer& layer, const ModuleConfig& module) {
  const std::string& from = module.init;
  auto& saved = open_[from];
  if (!saved) {
    auto opened = state::SavedValues::open(from);
    if (!opened.ok()) return std::move(opened).error();
    saved = std::make_unique<state::SavedValues>(std::move(opened).value());
  }
  for (auto& parameter : layer.parameters()) {
    if (!parameter.value.defined()) continue;
    const at::Tensor target = parameter.value.detach();
    const auto value =
        saved->read(name_there(module, *saved, parameter.name), target.scalar_type());
    if (!value.ok()) return value.error();
    if (value.value().sizes() != target.sizes())
      return Error{Errc::bad_data, "'" + parameter.name + "' has another shape there", from, {}};
    target.copy_(value.value());
  }
  return Done{};
}

int drawing_threads(const job::Cluster& cluster, NodeId node, int cores) {
  const auto nodes = node.value < cluster.local_nodes ? cluster.local_nodes : 1;
  return std::max(1, cores / std::max(1, nodes * cluster.devices_per_node));
}

bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto rest = below(path, folder);
  return !rest.empty() && *rest.begin() != "..";
}

Status resolve_init(job::Job& job) {
  for (ModuleConfig& module : job.modules) {
    if (module.init.empty()) continue;
    auto found = state::find_saved_values(module.init, job::checkpoints_of_run(module.init));
    if (!found.ok()) {
      Error error = std::move(found).error();
      error.message = error.where + ": " + error.message;
      error.where = key_of(module);
      return error;
    }
    module.init = std::filesystem::absolute(found.value()).string();
  }
  return Done{};
}

std::vector<Error> init_problems(const JobSetup& setup) {
  std::vector<Error> problems;
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    const ModuleConfig& module = config_of(setup, ModuleId{m});
    if (module.init.empty()) continue;
    for (Error& error : problems_of(setup, ModuleId{m}, module))
      problems.push_back(std::move(error));
    for (Error& error : laid_aside_problems(setup.job, module))
      problems.push_back(std::move(error));
  }
  return problems;
}

std::vector<std::string> unused_init(const JobSetup& setup) {
  std::vector<std::string> lines;
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    const ModuleConfig& module = config_of(setup, ModuleId{m});
    if (module.init.empty()) continue;
    const auto saved = state::SavedValues::open(module.init);
    if (!saved.ok()) continue;
    std::set<std::string> known;
    for (const ParameterInfo& info : setup.parameters) known.insert(info.name);
    std::vector<std::string> unused;
    for (const auto& [name, shape] : saved.value().shapes())
      if (name.starts_with(module.name + ".") && !known.contains(name)) unused.push_back(name);
    if (!unused.empty())
      lines.push_back(key_of(module) + ": " + module.init + " also has " + listed(unused) +
                      ", which the module has no place for");
  }
  return lines;
}

}  // namespace troupe::engine
