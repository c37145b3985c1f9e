#include "app/held_folder.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>

#include "app/ask_head.hpp"
#include "app/control_file.hpp"
#include "engine/profiling/this_machine.hpp"
#include "engine/run/run_lock.hpp"
#include "runtime/files/file_reads.hpp"

namespace troupe::app {

namespace {

constexpr AskTimes kTimes{3, std::chrono::milliseconds(3000)};

/// Whether a process of this machine stands still because of SIGSTOP or its like.
bool is_stopped(const std::string& process) {
  std::string facts;
  std::ifstream stream("/proc/" + process + "/stat");
  std::getline(stream, facts);
  const auto name_ends = facts.rfind(") ");  // `12 (a name) T 1 ...`
  return name_ends != std::string::npos && facts.compare(name_ends + 2, 1, "T") == 0;
}

/// `; its newest line, in metrics.jsonl, is 40 s old`: how long a head that answers nothing has
/// been silent. Empty where it has written none.
std::string silence_text(const std::filesystem::path& run) {
  const files::ReadingFile reading(run);
  std::string name;
  std::filesystem::file_time_type newest;
  for (const char* file : {"metrics.jsonl", "events.jsonl", "train.log"}) {
    std::error_code fault;
    const auto written = std::filesystem::last_write_time(run / file, fault);
    if (fault || (!name.empty() && written <= newest)) continue;
    name = file;
    newest = written;
  }
  if (name.empty()) return "";
  const auto age = std::filesystem::file_time_type::clock::now() - newest;
  const auto age_s =
      std::max<std::int64_t>(0, std::chrono::floor<std::chrono::seconds>(age).count());
  return "; its newest line, in " + name + ", is " + std::to_string(age_s) + " s old";
}

}  // namespace

Error told_of_holder(Error refused, const std::filesystem::path& run) {
  const auto owner = engine::lock_owner(run);
  if (!owner) return refused;
  const bool is_here = owner->host == engine::host_name();
  const std::string process = std::to_string(owner->process);
  const std::string end = (is_here ? "" : "on " + owner->host + ": ") + ("kill -9 " + process) +
                          ", then the same command";
  if (is_here && is_stopped(process)) {
    refused.message += "; it is stopped, and answers nothing" + silence_text(run);
    refused.fix = "kill -CONT " + process + " lets it go on; or " + end;
    return refused;
  }
  const auto control = read_control(run);
  if (!control.ok() || control.value().process != owner->process) {
    refused.message += "; it has not opened its door, so that it cannot be asked";
    return refused;
  }
  if (ask_head(run, {}, kTimes).ok()) {
    refused.message += "; it answers";
    return refused;
  }
  refused.message += "; it does not answer" + silence_text(run);
  refused.fix = "if it hangs: " + end;
  return refused;
}

}  // namespace troupe::app
