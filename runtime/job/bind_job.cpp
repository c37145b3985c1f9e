#include "runtime/job/bind_job.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "runtime/data/formats/registry.hpp"
#include "runtime/job/section_reader.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/plugins/load_plugin.hpp"
#include "runtime/policies/registry.hpp"
#include "runtime/schedules/registry.hpp"

namespace troupe::job {

namespace {

Identity bind_identity(const Value* value, Findings& findings) {
  Identity identity;
  SectionReader reader{value, "job", findings};
  describe_identity(reader, identity);
  reader.finish();
  if (identity.run_dir.empty()) identity.run_dir = "runs/" + identity.name;
  return identity;
}

/// The word at a key that names something of a list; nullptr where there is none.
const std::string* word_at(const Value* table, const char* key) {
  const Value* value = table == nullptr ? nullptr : table->find(key);
  return value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
}

/// Names of a list that plug-ins add to. Without all of them any word may be one of theirs, and
/// what was said of them is enough.
std::vector<std::string> names_with(std::vector<std::string> known, const std::string* word,
                                    bool has_all_plugins) {
  if (!has_all_plugins && word != nullptr) known.push_back(*word);
  return known;
}

DataSource bind_source(const Value& value, const std::string& path, bool has_all_plugins,
                       Findings& findings) {
  DataSource source;
  SectionReader reader{&value, path, findings};
  // Whoever opens it says so where it is not there.
  if (value.find("nodes") != nullptr) reader.allow_missing_paths();
  describe_source(reader, source,
                  names_with(data::format_names(), word_at(&value, "format"), has_all_plugins));
  reader.finish();
  if (!reader.is_given()) return source;
  if (value.find("json") == nullptr)
    findings.add(Errc::invalid_argument, value.where(), path + ": json is missing",
                 "name the list of samples: json = \"data/samples.json\"");
  if (source.media.empty()) source.media = source.json.parent_path();
  return source;
}

Data bind_data(const Value* value, bool has_all_plugins, Findings& findings) {
  Data data;
  SectionReader reader{value, "data", findings};
  if (const auto* sources = reader.list("sources"))
    for (const auto& source : *sources)
      data.sources.push_back(
          bind_source(source, "data.sources[" + std::to_string(data.sources.size()) + "]",
                      has_all_plugins, findings));
  describe_data(reader, data);
  reader.finish();
  // From the current directory, as the run folder, but the same for a run that goes on elsewhere.
  if (findings.paths != Paths::of_another_machine && data.index.find('/') != std::string::npos)
    data.index = std::filesystem::absolute(data.index).lexically_normal().string();
  return data;
}

Cluster bind_cluster(const Value* value, bool has_plugins, Findings& findings) {
  Cluster cluster;
  SectionReader reader{value, "cluster", findings};
  // What plug-ins bring LibTorch alone knows, in the processes that have such devices.
  describe_cluster(reader, cluster, names_with(kDevices, word_at(value, "device"), !has_plugins));
  reader.finish();
  const bool says_nodes = findings.origins.contains("cluster.nodes");
  const bool says_local = findings.origins.contains("cluster.local_nodes");
  if (says_nodes && !says_local) cluster.local_nodes = 0;
  if (!says_nodes) cluster.nodes = std::max(cluster.local_nodes, 1);
  // Nodes of one machine alone go with their head unless the job wants them to wait for another.
  constexpr double kHeadTimeoutS = 60;
  if (!findings.origins.contains("cluster.head_timeout_s") && cluster.nodes > cluster.local_nodes)
    cluster.head_timeout_s = kHeadTimeoutS;
  return cluster;
}

/// Loads the libraries: what they add is there when the modules are read. Problems of loading are
/// left to the caller.
Plugins bind_plugins(const Value* value, Findings& findings, std::vector<Error>& not_loaded) {
  Plugins plugins;
  const auto problems_before = findings.problems.size();
  SectionReader reader{value, "plugins", findings};
  describe_plugins(reader, plugins);
  reader.finish();
  if (findings.problems.size() != problems_before) return plugins;
  for (std::size_t i = 0; i < plugins.libraries.size(); ++i)
    if (auto loaded = plugins::load_plugin(plugins.libraries[i]); !loaded.ok())
      not_loaded.push_back(
          {loaded.error().code,
           "plugins.libraries[" + std::to_string(i) + "]: " + loaded.error().message,
           "plugins.libraries", loaded.error().fix});
  return plugins;
}

observers::Watch bind_watch(const Value& value, const std::string& path, bool has_all_plugins,
                            Findings& findings) {
  observers::Watch watch;
  SectionReader reader{&value, path, findings};
  const std::string* wanted = word_at(&value, "name");
  auto names = names_with(observers::observer_names(), wanted, has_all_plugins);
  if (names.empty() && wanted != nullptr) {
    findings.add(Errc::invalid_argument, value.find("name")->where(),
                 path + ".name: '" + *wanted + "' is no observer: none is registered",
                 "name the library of one in libraries of [plugins]; `troupe new observer NAME` "
                 "writes one");
    names.push_back(*wanted);  // Once is enough.
  }
  describe_watch(reader, watch, names);
  reader.finish();
  if (reader.is_given() && value.find("name") == nullptr)
    findings.add(Errc::invalid_argument, value.where(), path + ": name is missing",
                 "name an observer of a plug-in: `troupe new observer NAME` writes one");
  return watch;
}

Observation bind_observe(const Value* value, bool has_all_plugins, Findings& findings) {
  Observation observe;
  SectionReader reader{value, "observe", findings};
  if (const auto* watches = reader.list("observers"))
    for (const auto& watch : *watches)
      observe.observers.push_back(
          bind_watch(watch, "observe.observers[" + std::to_string(observe.observers.size()) + "]",
                     has_all_plugins, findings));
  describe_observe(reader, observe);
  reader.finish();
  auto& listen = observe.metrics_listen;
  // Figures are nobody else's business unless the job says so.
  if (!listen.empty() && listen.find_first_not_of("0123456789") == std::string::npos)
    listen = "127.0.0.1:" + listen;
  return observe;
}

/// `layouts_complete` becomes false where a layout is wrong already.
Debug bind_debug(const Value* value, const std::vector<std::string>& modules,
                 bool& layouts_complete, Findings& findings) {
  Debug debug;
  SectionReader reader{value, "debug", findings};
  if (const auto* shapes = reader.list("slow_shapes"))
    for (const auto& shape : *shapes) {
      const auto path = "debug.slow_shapes[" + std::to_string(debug.slow_shapes.size()) + "]";
      SectionReader entry{&shape, path, findings};
      describe_slow_shape(entry, debug.slow_shapes.emplace_back());
      entry.finish();
    }
  const auto problems_before = findings.problems.size();
  if (const auto* layouts = reader.list("layouts"))
    debug.layouts = bind_later_layouts(*layouts, modules, findings);
  if (findings.problems.size() > problems_before) layouts_complete = false;
  describe_debug(reader, debug);
  reader.finish();
  return debug;
}

template <class Section, class Describe>
Section bind_section(const Value* value, const char* path, Findings& findings, Describe describe) {
  Section section;
  SectionReader reader{value, path, findings};
  describe(reader, section);
  reader.finish();
  return section;
}

}  // namespace

BoundJob bind_job(const Value& root, Findings& findings) {
  BoundJob bound;
  Job& job = bound.job;
  SectionReader reader{&root, "", findings};
  reader.take("extends");  // Already followed.
  job.job = bind_identity(reader.take("job"), findings);
  const auto problems_at_first = findings.problems.size();
  std::vector<Error> not_loaded;
  job.plugins = bind_plugins(reader.take("plugins"), findings, not_loaded);
  const bool has_all_plugins = findings.problems.size() == problems_at_first && not_loaded.empty();
  job.modules = bind_modules(reader.take("modules"), has_all_plugins, findings);
  // Also those whose table was wrong: a layout may name them without a second complaint.
  std::vector<std::string> names;
  if (const Value* modules = root.find("modules");
      modules != nullptr && modules->table() != nullptr)
    for (const auto& member : *modules->table()) names.push_back(member.key);
  bound.modules_complete = names.size() == job.modules.size();
  job.data = bind_data(reader.take("data"), has_all_plugins, findings);
  const bool are_formats_known = std::ranges::all_of(
      job.data.sources, [](const auto& source) { return data::check_format(source.format).ok(); });
  // On another machine a library may lie elsewhere, or another one there: what counts is that its
  // families and formats are known. Whether it is the head's build the head sees. Policies are
  // asked by the head alone.
  if (findings.paths != Paths::of_another_machine || !bound.modules_complete || !are_formats_known)
    for (auto& error : not_loaded)
      findings.add_at(error.where, std::move(error.message), std::move(error.fix), error.code);
  const auto problems_before = findings.problems.size();
  job.parallel = bind_parallel(reader.take("parallel"), names, findings);
  bound.layout_complete = findings.problems.size() == problems_before;
  job.debug = bind_debug(reader.take("debug"), names, bound.layout_complete, findings);
  job.train = bind_section<Train>(reader.take("train"), "train", findings,
                                  [](auto& v, auto& x) { describe_train(v, x); });
  job.optimizer = bind_section<Optimizer>(reader.take("optimizer"), "optimizer", findings,
                                          [](auto& v, auto& x) { describe_optimizer(v, x); });
  const Value* scheduler = reader.take("scheduler");
  const auto schedules =
      names_with(schedules::schedule_names(), word_at(scheduler, "schedule"), has_all_plugins);
  job.scheduler = bind_section<Scheduler>(scheduler, "scheduler", findings, [&](auto& v, auto& x) {
    describe_scheduler(v, x, schedules);
  });
  const Value* balancer = reader.take("balancer");
  const auto policies =
      names_with(policies::policy_names(), word_at(balancer, "policy"), has_all_plugins);
  job.balancer = bind_section<Balancer>(
      balancer, "balancer", findings, [&](auto& v, auto& x) { describe_balancer(v, x, policies); });
  job.checkpoint = bind_section<Checkpointing>(reader.take("checkpoint"), "checkpoint", findings,
                                               [](auto& v, auto& x) { describe_checkpoint(v, x); });
  job.cluster = bind_cluster(reader.take("cluster"), !job.plugins.libraries.empty(), findings);
  job.recovery = bind_section<Recovery>(reader.take("recovery"), "recovery", findings,
                                        [](auto& v, auto& x) { describe_recovery(v, x); });
  job.observe = bind_observe(reader.take("observe"), has_all_plugins, findings);
  reader.finish();
  return bound;
}

}  // namespace troupe::job
