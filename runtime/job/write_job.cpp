#include "models/family/registry.hpp"
#include "runtime/job/fields.hpp"
#include "runtime/job/load_job.hpp"
#include "runtime/job/toml_text.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::job {

namespace {

/// Visitor of fields.hpp that writes `key = value  # origin`.
class SectionWriter {
 public:
  SectionWriter(std::string& out, std::string path, const LoadedJob& loaded)
      : out_(out), path_(std::move(path)), loaded_(loaded) {}

  void flag(const char* key, bool x) { line(key, x ? "true" : "false"); }
  template <class T>
  void integer(const char* key, const T& x, Range<std::int64_t>) {
    if constexpr (std::is_integral_v<T>)
      line(key, std::to_string(x));
    else if (x)
      line(key, std::to_string(*x));
  }
  void number(const char* key, double x, Range<double>) { line(key, toml_number(x)); }
  void number(const char* key, const std::optional<double>& x, Range<double>) {
    if (x) line(key, toml_number(*x));
  }
  void numbers(const char* key, const std::vector<std::int32_t>& x, Range<std::int64_t>) {
    if (!x.empty()) line(key, "[" + joined(x) + "]");
  }
  void pair(const char* key, double first, double second, Range<double>) {
    line(key, "[" + toml_number(first) + ", " + toml_number(second) + "]");
  }
  void text(const char* key, const std::string& x) {
    if (!x.empty()) line(key, toml_string(x));
  }
  void word(const char* key, const std::string& x, const auto&) { line(key, toml_string(x)); }
  void choice(const char* key, auto x, const auto& names) {
    for (const auto& [name, value] : names)
      if (value == x) line(key, toml_string(std::string(name)));
  }
  void input_path(const char* key, const std::filesystem::path& x) {
    line(key, toml_string(x.string()));
  }
  void output_path(const char* key, const std::filesystem::path& x) {
    line(key, toml_string(x.string()));
  }
  void input_paths(const char* key, const std::vector<std::filesystem::path>& x) {
    if (x.empty()) return;
    std::string text;
    for (const auto& path : x) text += (text.empty() ? "" : ", ") + toml_string(path.string());
    line(key, "[" + text + "]");
  }
  void duration(const Duration& x) {
    for (const auto& [name, unit] : kDurations)
      if (unit == x.unit) line(name, std::to_string(x.amount));
  }
  void line(std::string_view key, const std::string& value) {
    const auto found = loaded_.origins.find(path_ + "." + std::string(key));
    const bool is_given = found != loaded_.origins.end();
    out_ += std::string(key) + " = " + value + "  # " +
            (is_given ? found->second.where : "default") + "\n";
  }

 private:
  std::string& out_;
  std::string path_;
  const LoadedJob& loaded_;
};

std::string stage_text(const HandStage& stage) {
  std::string text = "{node = " + std::to_string(stage.node);
  if (stage.devices.empty()) text += ", device = " + std::to_string(stage.device);
  text += grid_toml(stage);
  for (const auto& run : stage.runs) {
    text += ", " + run.module + " = ";
    text += run.layers ? "[" + std::to_string(run.layers->begin) + ", " +
                             std::to_string(run.layers->end) + "]"
                       : "\"all\"";
  }
  return text + "}";
}

/// Writes the sections of a job one after the other.
class JobWriter {
 public:
  explicit JobWriter(const LoadedJob& loaded) : loaded_(loaded) {}

  std::string write() {
    const Job& job = loaded_.job;
    out_ =
        "# Every value of this job and where it came from. Reading this file gives the same job.\n";
    section("job", [&](auto& v) { describe_identity(v, job.job); });
    if (!job.plugins.libraries.empty())
      section("plugins", [&](auto& v) { describe_plugins(v, job.plugins); });
    for (const auto& module : job.modules) write_module(module);
    write_parallel(job.parallel);
    section("data", [&](auto& v) { describe_data(v, job.data); });
    for (std::size_t i = 0; i < job.data.sources.size(); ++i)
      table("[[data.sources]]", "data.sources[" + std::to_string(i) + "]",
            [&](auto& v) { describe_source(v, job.data.sources[i], {}); });
    section("train", [&](auto& v) { describe_train(v, job.train); });
    section("optimizer", [&](auto& v) { describe_optimizer(v, job.optimizer); });
    section("scheduler", [&](auto& v) { describe_scheduler(v, job.scheduler, {}); });
    section("balancer", [&](auto& v) { describe_balancer(v, job.balancer, {}); });
    section("checkpoint", [&](auto& v) { describe_checkpoint(v, job.checkpoint); });
    section("cluster", [&](auto& v) { describe_cluster(v, job.cluster, kDevices); });
    section("recovery", [&](auto& v) { describe_recovery(v, job.recovery); });
    section("observe", [&](auto& v) { describe_observe(v, job.observe); });
    for (std::size_t i = 0; i < job.observe.observers.size(); ++i)
      table("[[observe.observers]]", "observe.observers[" + std::to_string(i) + "]",
            [&](auto& v) { describe_watch(v, job.observe.observers[i], {}); });
    section("debug", [&](auto& v) { describe_debug(v, job.debug); });
    for (std::size_t i = 0; i < job.debug.slow_shapes.size(); ++i)
      table("[[debug.slow_shapes]]", "debug.slow_shapes[" + std::to_string(i) + "]",
            [&](auto& v) { describe_slow_shape(v, job.debug.slow_shapes[i]); });
    for (std::size_t i = 0; i < job.debug.layouts.size(); ++i) write_later(job.debug.layouts[i], i);
    return std::move(out_);
  }

 private:
  template <class Describe>
  void table(const std::string& header, const std::string& path, Describe describe) {
    out_ += "\n" + header + "\n";
    SectionWriter writer{out_, path, loaded_};
    describe(writer);
  }
  template <class Describe>
  void section(const std::string& path, Describe describe) {
    table("[" + path + "]", path, describe);
  }

  void write_module(const ModuleConfig& module) {
    const auto path = "modules." + module.name;
    section(path, [&](auto& v) {
      describe_module(v, module);
      v.line("init", toml_string(module.init.empty() ? "seed" : module.init));
    });
    auto config = module.config;
    section(path + ".config",
            [&](auto& v) { describe_config(v, models::checked_family(module), config); });
  }

  void write_parallel(const Parallel& parallel) {
    section("parallel", [&](auto& v) { v.choice("mode", parallel.mode, kLayoutModes); });
    for (const auto& [name, layout] : parallel.modules)
      section("parallel." + name, [&](auto& v) { describe_module_layout(v, layout); });
    write_layout(parallel.layout, "parallel", "parallel");
  }

  void write_later(const LaterLayout& later, std::size_t number) {
    const auto path = "debug.layouts[" + std::to_string(number) + "]";
    table("[[debug.layouts]]", path, [&](auto& v) { describe_later_layout(v, later); });
    write_layout(later.layout, "debug.layouts", path);
  }

  /// `name`: of the table that holds it, `path`: which one it is.
  void write_layout(const HandLayout& layout, const std::string& name, const std::string& path) {
    for (std::size_t i = 0; i < layout.pipelines.size(); ++i)
      table("[[" + name + ".pipelines]]", path + ".pipelines[" + std::to_string(i) + "]",
            [&](auto& v) { v.line("stages", stages_text(layout.pipelines[i])); });
    for (std::size_t i = 0; i < layout.replicas.size(); ++i) {
      const HandReplica& replica = layout.replicas[i];
      std::string modules;
      for (const auto& module : replica.modules)
        modules += (modules.empty() ? "\"" : ", \"") + module + "\"";
      table("[[" + name + ".replicas]]", path + ".replicas[" + std::to_string(i) + "]",
            [&](auto& v) {
              v.line("modules", "[" + modules + "]");
              v.line("stages", stages_text(replica.stages));
            });
    }
  }

  static std::string stages_text(const std::vector<HandStage>& stages) {
    std::string text = "[";
    for (const auto& stage : stages)
      text += (text.size() == 1 ? "\n  " : ",\n  ") + stage_text(stage);
    return text + "\n]";
  }

  const LoadedJob& loaded_;
  std::string out_;
};

}  // namespace

std::string grid_toml(const HandStage& stage) {
  std::string text;
  for (std::size_t i = 0; i < stage.devices.size(); ++i)
    text += (i == 0 ? ", devices = [" : ", ") + std::to_string(stage.devices[i]);
  if (!stage.devices.empty()) text += "]";
  if (stage.tp > 1) text += ", tp = " + std::to_string(stage.tp);
  if (stage.cp > 1) text += ", cp = " + std::to_string(stage.cp);
  return text;
}

std::string to_toml(const LoadedJob& loaded) { return JobWriter{loaded}.write(); }

}  // namespace troupe::job
