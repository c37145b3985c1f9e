#include "app/run_record.hpp"

#include <ctime>
#include <iomanip>
#include <random>
#include <sstream>

#include "app/spawn.hpp"
#include "app/version.hpp"
#include "engine/profiling/this_machine.hpp"
#include "engine/run/run_lock.hpp"
#include "runtime/observe/run_facts.hpp"
#include "runtime/vocabulary/model_words.hpp"

namespace troupe::app {

namespace {

/// The command line of this process, as it could be typed again.
std::string command_line() {
  std::string text;
  for (const std::string& word : own_words()) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'$\\*?[]{}()<>|&;#~`!") == std::string::npos;
    if (!text.empty()) text += ' ';
    text += plain ? word : "'" + word + "'";
  }
  return text;
}

}  // namespace

std::string run_id(const std::filesystem::path& run, bool is_continued) {
  if (is_continued)
    if (const auto facts = observe::read_run_facts(run); facts.ok() && !facts.value().id.empty())
      return facts.value().id;
  std::random_device device;
  std::ostringstream text;
  for (int i = 0; i < 2; ++i) text << std::hex << std::setw(8) << std::setfill('0') << device();
  return text.str();
}

std::int64_t next_incarnation(const std::filesystem::path& run, bool is_continued) {
  if (!is_continued) return 1;
  const auto facts = observe::read_run_facts(run);
  return facts.ok() ? facts.value().incarnation + 1 : 1;
}

Status record_begin(const std::filesystem::path& run, const std::string& id,
                    std::int64_t incarnation, const job::Job& job, const DataOrder& data) {
  observe::RunFacts facts;
  facts.id = id;
  facts.incarnation = incarnation;
  facts.job = job.job.name;
  facts.command = command_line();
  facts.version = build_id();
  facts.libraries = libraries_text();
  facts.host = engine::host_name();
  facts.processor = engine::processor_name();
  facts.cores = engine::core_count();
  facts.nodes = job.cluster.nodes;
  facts.local_nodes = job.cluster.local_nodes;
  facts.schedule = job.scheduler.schedule;
  facts.policy = job.balancer.policy;
  facts.dtype = dtype_word(job.train.dtype);
  if (job.train.duration.unit == job::DurationUnit::steps) facts.steps = job.train.duration.amount;
  facts.batch = job.train.global_batch_size;
  facts.epochs = data.epochs;
  facts.started_s = std::time(nullptr);
  return observe::write_run_facts(run, facts);
}

void record_end(const std::filesystem::path& run, std::int32_t exit_code,
                const std::string& message) {
  if (engine::is_taken_over(run)) return;
  auto facts = observe::read_run_facts(run);
  if (!facts.ok()) return;
  facts.value().end = observe::RunEnd{std::time(nullptr), exit_code, message};
  (void)observe::write_run_facts(run, facts.value());
}

}  // namespace troupe::app
