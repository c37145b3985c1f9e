#include "runtime/job/key_list.hpp"

#include <array>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "models/family/registry.hpp"
#include "runtime/data/formats/registry.hpp"
#include "runtime/job/fields.hpp"
#include "runtime/job/key_meanings.hpp"
#include "runtime/job/toml_text.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/policies/registry.hpp"
#include "runtime/schedules/registry.hpp"
#include "runtime/vocabulary/joined.hpp"

namespace troupe::job {

namespace {

/// `a, b or c`, each as a string of TOML.
template <class Words>
std::string one_of(const Words& words) {
  std::vector<std::string> strings;
  for (const auto& word : words) strings.push_back(toml_string(std::string(word)));
  return joined(strings, " or ");
}

/// `1 to 1000`; a bound that nobody meets by intent goes without saying.
template <class T>
std::string range_text(const Range<T>& range) {
  constexpr T kBoundless = static_cast<T>(1'000'000'000);
  const auto text = [](T x) {
    if constexpr (std::is_integral_v<T>)
      return std::to_string(x);
    else
      return toml_number(x);
  };
  return range.max >= kBoundless ? "at least " + text(range.min)
                                 : text(range.min) + " to " + text(range.max);
}

/// Visitor of fields.hpp that lists keys instead of reading or writing them.
class KeyLister {
 public:
  KeyLister(std::vector<KeyEntry>& list, std::string section, std::string prefix)
      : list_(list), section_(std::move(section)), prefix_(std::move(prefix)) {}

  void flag(const char* key, bool& x) { add(key, x ? "true" : "false", "true or false"); }
  template <class T>
  void integer(const char* key, T& x, Range<std::int64_t> range) {
    std::string preset;
    if constexpr (std::is_integral_v<T>) preset = std::to_string(x);
    add(key, preset, "integer, " + range_text(range));
  }
  template <class T>
  void number(const char* key, T& x, Range<double> range) {
    std::string preset;
    if constexpr (std::is_floating_point_v<T>) preset = toml_number(x);
    add(key, preset, "number, " + range_text(range));
  }
  void numbers(const char* key, std::vector<std::int32_t>&, Range<std::int64_t> range) {
    add(key, "", "list of integers, " + range_text(range));
  }
  void pair(const char* key, double& first, double& second, Range<double> range) {
    add(key, "[" + toml_number(first) + ", " + toml_number(second) + "]",
        "two numbers, " + range_text(range));
  }
  void text(const char* key, std::string& x) { add(key, x.empty() ? "" : toml_string(x), "text"); }
  void word(const char* key, std::string& x, const auto& words) {
    add(key, toml_string(x), one_of(words));
  }
  void choice(const char* key, auto& x, const auto& names) {
    std::vector<std::string_view> words;
    std::string preset;
    for (const auto& [name, value] : names) {
      words.push_back(name);
      if (value == x) preset = toml_string(std::string(name));
    }
    add(key, preset, one_of(words));
  }
  void input_path(const char* key, std::filesystem::path&) { add(key, "", "path"); }
  void output_path(const char* key, std::filesystem::path&) { add(key, "", "path"); }
  void input_paths(const char* key, std::vector<std::filesystem::path>&) {
    add(key, "[]", "list of paths");
  }
  void duration(Duration&) {
    for (const auto& [name, unit] : kDurations) add(name, "", "integer, " + range_text(kCount));
  }
  void add(std::string_view key, std::string preset, std::string takes) {
    const auto path = prefix_ + std::string(key);
    const auto said = meaning_of(path);
    list_.push_back({section_, path, said.preset.empty() ? preset : std::string(said.preset),
                     std::move(takes), std::string(said.meaning)});
  }

 private:
  std::vector<KeyEntry>& list_;
  const std::string section_;
  const std::string prefix_;
};

/// Lists the keys of one table after the other.
class Sections {
 public:
  template <class Section, class Describe>
  void table(const std::string& name, Section section, Describe describe) {
    walk("[" + name + "]", name + ".", std::move(section), describe);
  }
  template <class Section, class Describe>
  void list(const std::string& name, Section section, Describe describe) {
    walk("[[" + name + "]]", name + "[].", std::move(section), describe);
  }
  template <class Section, class Describe>
  void walk(const std::string& header, const std::string& prefix, Section section,
            Describe describe) {
    KeyLister lister(keys, header, prefix);
    describe(lister, section);
  }
  /// A key that fields.hpp does not name, because a section of its own reads it.
  void extra(const std::string& header, const std::string& prefix, std::string_view key,
             std::string takes) {
    KeyLister(keys, header, prefix).add(key, "", std::move(takes));
  }

  std::vector<KeyEntry> keys;
};

void list_modules(Sections& sections) {
  const std::string module = "modules.NAME";
  sections.table(module, ModuleConfig{}, [](auto& v, auto& x) { describe_module(v, x); });
  sections.extra("[modules.NAME]", "modules.NAME.", "init", "path, or \"seed\"");
  sections.extra("[modules.NAME]", "modules.NAME.", "hf", "path");
  sections.extra("[modules.NAME]", "modules.NAME.", "config", "table");
  for (const auto* family : models::families())
    sections.walk("[modules.NAME.config] of " + family->name, "modules.NAME.config.",
                  family->defaults, [&](auto& v, auto& x) { describe_config(v, *family, x); });
}

void list_parallel(Sections& sections) {
  sections.table("parallel", Parallel{},
                 [](auto& v, auto& x) { v.choice("mode", x.mode, kLayoutModes); });
  sections.extra("[parallel]", "parallel.", "pipelines", "list of tables");
  sections.extra("[parallel]", "parallel.", "replicas", "list of tables");
  sections.table("parallel.NAME", ModuleLayout{},
                 [](auto& v, auto& x) { describe_module_layout(v, x); });
}

void list_debug(Sections& sections) {
  sections.table("debug", Debug{}, [](auto& v, auto& x) { describe_debug(v, x); });
  sections.extra("[debug]", "debug.", "slow_shapes", "list of tables");
  sections.extra("[debug]", "debug.", "layouts", "list of tables");
  sections.list("debug.slow_shapes", SlowShape{},
                [](auto& v, auto& x) { describe_slow_shape(v, x); });
  sections.list("debug.layouts", LaterLayout{},
                [](auto& v, auto& x) { describe_later_layout(v, x); });
}

}  // namespace

std::string KeyEntry::key() const { return path.substr(path.find_last_of('.') + 1); }

std::vector<KeyEntry> key_list() {
  Sections sections;
  sections.extra("", "", "extends", "path, or a list of them");
  sections.table("job", Identity{}, [](auto& v, auto& x) { describe_identity(v, x); });
  sections.table("plugins", Plugins{}, [](auto& v, auto& x) { describe_plugins(v, x); });
  list_modules(sections);
  list_parallel(sections);
  sections.table("data", Data{}, [](auto& v, auto& x) { describe_data(v, x); });
  sections.extra("[data]", "data.", "sources", "list of tables");
  const auto formats = data::format_names();
  sections.list("data.sources", DataSource{},
                [&](auto& v, auto& x) { describe_source(v, x, formats); });
  sections.table("train", Train{}, [](auto& v, auto& x) { describe_train(v, x); });
  sections.table("optimizer", Optimizer{}, [](auto& v, auto& x) { describe_optimizer(v, x); });
  const auto schedules = schedules::schedule_names();
  sections.table("scheduler", Scheduler{},
                 [&](auto& v, auto& x) { describe_scheduler(v, x, schedules); });
  const auto policies = policies::policy_names();
  sections.table("balancer", Balancer{},
                 [&](auto& v, auto& x) { describe_balancer(v, x, policies); });
  sections.table("checkpoint", Checkpointing{},
                 [](auto& v, auto& x) { describe_checkpoint(v, x); });
  sections.table("cluster", Cluster{}, [](auto& v, auto& x) { describe_cluster(v, x, kDevices); });
  sections.table("recovery", Recovery{}, [](auto& v, auto& x) { describe_recovery(v, x); });
  sections.table("observe", Observation{}, [](auto& v, auto& x) { describe_observe(v, x); });
  sections.extra("[observe]", "observe.", "observers", "list of tables");
  auto observers = observers::observer_names();
  if (observers.empty()) observers = {"an observer of a plug-in"};
  sections.list("observe.observers", observers::Watch{},
                [&](auto& v, auto& x) { describe_watch(v, x, observers); });
  list_debug(sections);
  return std::move(sections.keys);
}

}  // namespace troupe::job
