#include "app/read_limits.hpp"

#include <CLI/CLI.hpp>

#include "app/stalled_read.hpp"

namespace troupe::app {

void ReadTimeout::add_to(CLI::App& command) {
  command
      .add_option(
          "--timeout", seconds,
          "Seconds that a file, or a function of a plug-in, may be waited for; then the command "
          "ends with an error")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
}

int ReadTimeout::limit(const std::function<int()>& command) const {
  const EndOnStall watch(seconds, "--timeout");
  return command();
}

job::Job job_file_limits(const std::vector<std::string>& words) {
  std::vector<std::string> own;
  for (const auto& word : words)
    if (word.starts_with("data.read_timeout_s=") || word.starts_with("train.stall_timeout_s="))
      own.push_back(word);
  return job::parse_job("", "command line", own, job::Paths::of_another_machine).loaded.job;
}

job::JobReading read_job_in_time(const std::filesystem::path& file,
                                 const std::vector<std::string>& overrides) {
  const EndOnStalledRead reads(job_file_limits(overrides), kOfCommandLine);
  return job::read_job(file, overrides);
}

Result<job::LoadedJob> load_job_in_time(const std::filesystem::path& file,
                                        const std::vector<std::string>& overrides) {
  const EndOnStalledRead reads(job_file_limits(overrides), kOfCommandLine);
  return job::load_job(file, overrides);
}

}  // namespace troupe::app
