#include "runtime/plugins/load_plugin.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/files/look_up.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/plugins/user_calls.hpp"
#include "runtime/vocabulary/demangled.hpp"

namespace troupe::plugins {

namespace {

namespace fs = std::filesystem;

using AskInterface = const char* (*)();
using AskRegistration = void (*)(Status* answer);

template <class Function>
Function find_symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

Status refused(Errc code, const fs::path& library, const std::string& message, std::string fix) {
  return Error{code, library.string() + " " + message, library.string(), std::move(fix)};
}

const std::string kInterface = TROUPE_INTERFACE ", by " __VERSION__;
const std::string kRebuild =
    "build the plug-in anew against the headers that are installed with this program";

/// Names this program lacks mean that the plug-in was made for another one, or calls what is none
/// of the interface.
Status not_loaded(const fs::path& library) {
  const char* told = dlerror();
  const std::string reason = told == nullptr ? "for no told reason" : told;
  const std::string missing = "undefined symbol: ";
  if (const auto at = reason.find(missing); at != std::string::npos) {
    const auto begin = at + missing.size();
    const auto symbol = reason.substr(begin, reason.find_first_of(", ", begin) - begin);
    return refused(Errc::unavailable, library,
                   "needs " + demangled(symbol) + ", which this program does not have",
                   kRebuild + "; call only what they declare, and link what has the rest");
  }
  return refused(Errc::invalid_argument, library, "cannot be loaded: " + reason,
                 "name a shared library (.so) for this machine");
}

Status load(const fs::path& path) {
  // All names are looked up now: one that is not there would end the process in the middle of a
  // job, where it is first called.
  // A name without a slash would be looked for where the system has its libraries.
  const fs::path file = path.has_parent_path() ? path : fs::path(".") / path;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return not_loaded(path);
  const auto interface = find_symbol<AskInterface>(library, "troupe_plugin_interface");
  const auto registration = find_symbol<AskRegistration>(library, "troupe_plugin_register");
  if (interface == nullptr || registration == nullptr)
    return refused(
        Errc::invalid_argument, path, "is no plug-in of Troupe",
        "end its source with TROUPE_PLUGIN(function), of runtime/plugins/entry_point.hpp");
  if (const std::string theirs = interface(); theirs != kInterface)
    return refused(Errc::unavailable, path,
                   "was built for [" + theirs + "], this program is [" + kInterface + "]",
                   kRebuild);
  Status answer = Done{};
  registration(&answer);
  if (answer.ok()) return answer;
  return refused(answer.error().code, path, "refuses: " + answer.error().message,
                 answer.error().fix);
}

struct Libraries {
  std::mutex mutex;
  std::map<std::string, std::string> names;  // Of the files, by what they hold.
};

Libraries& libraries() {
  // Never destroyed: who was shown their contents may look at them until the process ends.
  static Libraries& all = *new Libraries;
  return all;
}

}  // namespace

Status load_plugin(const fs::path& library) {
  const std::lock_guard lock(libraries().mutex);
  // Read in sight of who watches for files that hang; what follows finds it in memory.
  const auto content = files::is_file(library) ? files::read_whole(library) : std::nullopt;
  if (!content)
    return refused(Errc::not_found, library, "is not there, or cannot be read",
                   "correct the path, or build the plug-in");
  if (libraries().names.contains(*content)) return Done{};
  // What it constructs, and what it registers with, need not return.
  const CallingUser calling("loading plug-in " + library.filename().string());
  auto answer = load(library);
  if (answer.ok()) libraries().names.emplace(*content, library.filename().string());
  return answer;
}

std::vector<LoadedPlugin> loaded_plugins() {
  const std::lock_guard lock(libraries().mutex);
  std::vector<LoadedPlugin> loaded;
  for (const auto& [content, name] : libraries().names) loaded.push_back({name, content});
  return loaded;
}

}  // namespace troupe::plugins
