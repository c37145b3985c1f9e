#include "runtime/job/run_checkpoints.hpp"

#include "runtime/files/read_stream.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::job {

std::filesystem::path checkpoints_of_run(const std::filesystem::path& run) {
  const auto file = run / "resolved.toml";
  const auto reading =
      parse_job(files::read_whole(file).value_or(""), file.string(), {}, Paths::of_another_machine);
  const auto& dir = reading.loaded.job.checkpoint.dir;
  return dir.empty() ? run / "checkpoints" : dir;
}

}  // namespace troupe::job
