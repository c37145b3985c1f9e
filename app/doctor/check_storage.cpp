#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "app/doctor/checks.hpp"
#include "transport/ucx/host_checks.hpp"

namespace troupe::app {

namespace {

constexpr Bytes kFreeMin{std::int64_t{1} << 30};  // A small model's checkpoints, and a long trace.
constexpr double kWriteMin = 20;                  // MB/s: a GiB of state takes a minute.

std::string folder_words(const FolderFacts& facts) {
  std::array<char, 32> speed{};
  std::snprintf(speed.data(), speed.size(), "%.0f MB/s", facts.write_mb_per_s);
  return facts.wanted.string() + ": " + facts.file_system + ", " + size_words(facts.free) +
         " free, writes " + speed.data() + " to the disk";
}

}  // namespace

Finding check_folder(const std::string& name, const FolderFacts& facts) {
  if (facts.failed)
    return problem(name, facts.wanted.string() + ": " + facts.failed->message, facts.failed->fix);
  const std::string words = folder_words(facts);
  if (facts.free < kFreeMin)
    return warning(name, words, "make room: a full disk costs checkpoints and ends a run's files");
  if (facts.is_memory)
    return warning(name, words + "; it is memory, and gone with the machine",
                   "keep runs in a folder on a disk (job.run_dir)");
  if (facts.is_of_container)
    return warning(name, words + "; it is gone with the container",
                   "mount a folder of the host there (docker: -v /runs:/runs)");
  if (!facts.has_locks)
    return warning(name, words + "; it has no locks",
                   "start no two jobs on one run folder: they are told apart only by a file's age");
  if (facts.is_network)
    return warning(name,
                   words +
                       "; other machines may see locks and renames late, and a server that is "
                       "gone holds up the job",
                   "keep run folders on a local disk, and put checkpoint.dir there alone");
  if (facts.write_mb_per_s < kWriteMin)
    return warning(name, words + ", which is slow",
                   "save less often (checkpoint.every_steps), or choose a faster disk");
  return fine(name, words);
}

Finding check_shared_memory(const SharedMemoryFacts& facts) {
  const char* const name = "shared memory";
  if (!facts.is_wanted) return fine(name, "not used: UCX_TLS excludes it");
  if (!facts.is_there)
    return problem(name, "there is no /dev/shm",
                   "mount a tmpfs there, or do without: UCX_TLS=self,tcp in the environment");
  if (auto room = transport::check_room("/dev/shm", facts.free); !room.ok())
    return problem(name, room.error());
  const std::string words =
      size_words(facts.free) + " of " + size_words(facts.total) + " free in /dev/shm";
  const Bytes needed = transport::shared_memory_of(facts.processes);
  if (facts.processes > 0 && facts.free < needed)
    return problem(name,
                   words + ", the job's " + std::to_string(facts.processes) +
                       " processes here take " + size_words(needed),
                   "enlarge it (docker: --shm-size=1g), or start fewer local nodes");
  if (facts.leftovers > 0)
    return warning(name,
                   words + "; " + std::to_string(facts.leftovers) + " files of UCX (" +
                       size_words(facts.leftover_bytes) + ") are left of processes that are gone",
                   "remove them: rm /dev/shm/ucx_shm_posix_*, while no other program uses UCX");
  return fine(name, words + (facts.processes > 0 ? ", the job takes " + size_words(needed) : ""));
}

}  // namespace troupe::app
