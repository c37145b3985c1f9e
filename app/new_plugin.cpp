// `troupe new`: a small working example of the user's own, to begin from.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.hpp"
#include "app/plugin_example.hpp"
#include "app/terminal.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "models/family/registry.hpp"
#include "runtime/data/formats/registry.hpp"
#include "runtime/observers/observer.hpp"
#include "runtime/policies/registry.hpp"
#include "runtime/schedules/registry.hpp"

namespace troupe::app {

namespace {

namespace fs = std::filesystem;

/// What a user may begin from.
struct Example {
  const char* kind;           // As the command line says it.
  std::string_view own_name;  // In its files; the user's stands in its place.
  std::string_view source, build, job, test;
  const char* summary;  // Of its source.
  const char* shows;    // What else its test does.
  bool (*is_taken)(const std::string& name);
};

bool is_family(const std::string& name) { return models::find_family(name) != nullptr; }
bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
bool is_policy(const std::string& name) { return is_one_of(policies::policy_names(), name); }
bool is_schedule(const std::string& name) { return is_one_of(schedules::schedule_names(), name); }
bool is_format(const std::string& name) { return is_one_of(data::format_names(), name); }

bool is_stage(const std::string& name) { return is_one_of(engine::stage_kind_names(), name); }
bool is_observer(const std::string& name) { return observers::find_observer(name) != nullptr; }

const Example kFamily{"family",
                      "resampler",
                      kFamilySource,
                      kFamilyBuild,
                      kFamilyJob,
                      kFamilyTest,
                      "a vision encoder with learned queries",
                      "checks its layers, and holds two stages against one process",
                      is_family};
const Example kPolicy{"policy",
                      "snake",
                      kPolicySource,
                      kPolicyBuild,
                      kPolicyJob,
                      kPolicyTest,
                      "samples dealt by their work, forth and back",
                      "shows it beside others, and holds two stages against one process",
                      is_policy};
const Example kSchedule{"schedule",
                        "windows",
                        kScheduleSource,
                        kScheduleBuild,
                        kScheduleJob,
                        kScheduleTest,
                        "a few microbatches forward, then the same ones backward",
                        "shows its step on paper, and holds two stages against one process",
                        is_schedule};
const Example kFormat{"format",
                      "captions",
                      kFormatSource,
                      kFormatBuild,
                      kFormatJob,
                      kFormatTest,
                      "lines of a picture's path and its caption",
                      "shows what the model sees, and holds two stages against one process",
                      is_format};

const Example kObserver{"observer",
                        "statistics",
                        kObserverSource,
                        kObserverBuild,
                        kObserverJob,
                        kObserverTest,
                        "means and deviations of what modules compute, a line each",
                        "shows what it saw, and that nothing else changed",
                        is_observer};

const Example kStage{"stage",
                     "sentry",
                     kStageSource,
                     kStageBuild,
                     kStageJob,
                     kStageTest,
                     "stages that let no number pass that is none",
                     "shows what it says, and that nothing else changed",
                     is_stage};

/// It has a policy of the same name.
const Example kProgram{"program",
                       "weaver",
                       kProgramSource,
                       kProgramBuild,
                       kProgramJob,
                       kProgramTest,
                       "all of troupe, and a policy that deals samples in turn",
                       "and holds two stages against one process",
                       is_policy};

struct NewOptions {
  std::string name;
  fs::path folder;
};

std::string with_article(const std::string& kind) {
  return (kind.front() == 'o' ? "an " : "a ") + kind;
}

/// As a shell reads it back.
std::string quoted_word(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("/._-+~").find(char(c)) != std::string_view::npos;
  };
  if (std::all_of(word.begin(), word.end(), plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// What the build of the example calls something else already.
constexpr std::array kBuildWords{"all",     "clean",  "help",       "install",       "test",
                                 "package", "depend", "edit_cache", "rebuild_cache", "preinstall"};

/// Whether the example's source calls something else so, like a layer: `"embed"`, `".block"`.
bool is_source_word(const Example& example, const std::string& name) {
  if (name == example.own_name) return false;
  for (const char* before : {"\"", "\"."})
    if (example.source.find(before + name + "\"") != std::string_view::npos) return true;
  return false;
}

bool is_good_name(const std::string& name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.front() >= 'a' && name.front() <= 'z' &&
         std::all_of(name.begin(), name.end(), good);
}

/// The example's text with another name in it.
std::string renamed(std::string_view text, std::string_view from, const std::string& name) {
  std::string out(text);
  for (auto at = out.find(from); at != std::string::npos; at = out.find(from, at + name.size()))
    out.replace(at, from.size(), name);
  return out;
}

Status write(const fs::path& file, const std::string& text, bool is_program) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  std::error_code failed;
  if (out && is_program)
    fs::permissions(file, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                    fs::perm_options::add, failed);
  if (!out || failed)
    return Error{Errc::io_failed, "cannot be written", file.string(),
                 "check the folder and the space on its disk"};
  return Done{};
}

Status write_example(const Example& example, const NewOptions& options) {
  const std::string kind = with_article(example.kind);
  if (!is_good_name(options.name))
    return Error{Errc::invalid_argument, "'" + options.name + "' is no name of " + kind, "NAME",
                 "use small letters, digits and _, beginning with a letter"};
  const bool is_build_word =
      std::find(kBuildWords.begin(), kBuildWords.end(), options.name) != kBuildWords.end();
  const bool is_taken = example.is_taken(options.name);
  if (is_build_word || is_taken || is_source_word(example, options.name))
    return Error{Errc::invalid_argument,
                 "'" + options.name + "' is " +
                     (is_build_word ? "a word of its build"
                      : is_taken    ? kind
                                    : "a word of its source") +
                     " already",
                 "NAME", "choose another name"};
  std::error_code failed;
  if (fs::exists(options.folder, failed) && !fs::is_empty(options.folder, failed))
    return Error{Errc::invalid_argument, "is there already, and not empty", options.folder.string(),
                 "name another folder with --dir"};
  fs::create_directories(options.folder, failed);
  if (failed)
    return Error{Errc::io_failed, failed.message(), options.folder.string(),
                 "name another folder with --dir"};
  const std::pair<std::string, std::string_view> files[] = {{options.name + ".cpp", example.source},
                                                            {"CMakeLists.txt", example.build},
                                                            {"job.toml", example.job},
                                                            {"test.sh", example.test}};
  for (const auto& [file, text] : files)
    if (auto done = write(options.folder / file, renamed(text, example.own_name, options.name),
                          file == "test.sh");
        !done.ok())
      return done;
  return Done{};
}

int make_example(const Example& example, const NewOptions& options) {
  if (auto done = write_example(example, options); !done.ok()) return report(done.error());
  std::error_code ignored;
  // PREFIX/bin/troupe, where it is installed.
  const auto prefix = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  const auto folder = options.folder.string();
  const auto test = quoted_word((options.folder / "test.sh").string());
  std::cout << with_article(example.kind) << " of your own, which trains as it is: " << folder
            << "\n"
            << "  " << options.name << ".cpp   " << example.summary << ": change what you like\n"
            << "  job.toml, CMakeLists.txt\n"
            << "  test.sh    builds it, " << example.shows << "\n";
  if (fs::exists(prefix / "include" / "troupe", ignored))
    std::cout << "Next:  " << test << " " << quoted_word(prefix.string()) << "\n";
  else
    std::cout
        << "Next, where this program was built:  cmake --install build/release --prefix FOLDER\n"
        << "and then:  " << test << " FOLDER\n";
  return kDone;
}

}  // namespace

void add_new(Commands& commands) {
  auto* fresh = commands.root.add_subcommand("new", "An example to begin a part of your own from");
  fresh->require_subcommand(1);
  const auto add = [&](const Example& example, const char* summary) {
    auto* command = fresh->add_subcommand(example.kind, summary);
    auto options = std::make_shared<NewOptions>();
    command->add_option("NAME", options->name, "What job files call it")->required();
    command->add_option("--dir", options->folder, "Where to put it (default: ./NAME)");
    command->callback([&commands, &example, options] {
      if (options->folder.empty()) options->folder = options->name;
      commands.exit_code = make_example(example, *options);
    });
  };
  add(kFamily, "A model family, as a plug-in");
  add(kPolicy, "A microbatch policy, as a plug-in");
  add(kSchedule, "A pipeline schedule, as a plug-in");
  add(kFormat, "A format of lists of samples, as a plug-in");
  add(kStage, "Stages that run layers in a way of your own, as a plug-in");
  add(kObserver, "An observer of what modules compute, as a plug-in");
  add(kProgram, "A program of your own that is this one and more");
}

}  // namespace troupe::app
