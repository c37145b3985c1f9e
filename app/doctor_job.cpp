#include "app/doctor_job.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "app/doctor/checks.hpp"
#include "app/doors.hpp"
#include "app/job_problems.hpp"
#include "app/terminal.hpp"
#include "engine/run/run_folder.hpp"
#include "engine/run/run_lock.hpp"
#include "runtime/data/samples/dataset.hpp"

namespace troupe::app {

namespace {

Finding job_finding(const std::vector<Error>& problems, const std::string& file) {
  Finding finding = problem("job", problems.front());
  if (problems.size() > 1) {
    finding.found +=
        "; " + counted(static_cast<std::int64_t>(problems.size()), "problem") + " in all";
    finding.fix = "troupe validate " + file + " names them";
  }
  return finding;
}

}  // namespace

Finding check_job(const job::JobReading& reading, const std::string& file) {
  if (!reading.ok()) return job_finding(reading.problems, file);
  if (const auto problems = job_problems(reading.loaded, file); !problems.empty())
    return job_finding(problems, file);
  const auto warnings = static_cast<std::int64_t>(reading.loaded.warnings.size());
  if (warnings == 0) return fine("job", file + " has no problems");
  return warning("job",
                 file + ": " + reading.loaded.warnings.front().message +
                     (warnings > 1 ? "; " + counted(warnings, "warning") + " in all" : ""),
                 "troupe validate " + file + " names what has no effect");
}

std::vector<Finding> check_fit(const job::LoadedJob& loaded, const std::string& file) {
  if (!job_problems(loaded, file).empty()) return {};
  const auto setup = engine::prepare(loaded.job).value();
  if (auto fits = check_memory_here(setup); !fits.ok()) return {problem("model", fits.error())};
  const auto& cluster = loaded.job.cluster;
  return {fine("model", cluster.local_nodes == cluster.nodes
                            ? "its state fits into the memory of this machine"
                            : "its nodes are not all here: `troupe plan` tells what each needs")};
}

Finding check_data(const job::Job& job) {
  const auto setup = engine::prepare(job);
  if (!setup.ok()) return problem("data", setup.error());
  const auto dataset = data::Dataset::open(setup.value().data);
  if (!dataset.ok()) return problem("data", dataset.error());
  for (const auto& source : setup.value().data.sources)
    if (!source.media.empty() && access(source.media.c_str(), R_OK | X_OK) != 0)
      return problem("data",
                     source.media.string() + ": its media cannot be read: " + std::strerror(errno),
                     "let this user read the folder, or mount it");
  return fine("data", counted(dataset.value().size(), "sample") + " in " +
                          counted(static_cast<std::int64_t>(job.data.sources.size()), "source") +
                          "; `troupe data check` reads them all");
}

Finding check_is_free(const std::string& name, const job::Job& job, const FolderFacts& facts) {
  Finding finding = check_folder(name, facts);
  if (finding.level == Level::problem || name != "run folder") return finding;
  if (auto fits = engine::RunFolder::check(job.job.run_dir); !fits.ok())
    return problem(name, fits.error());
  if (engine::is_locked(job.job.run_dir))
    return problem(name, job.job.run_dir.string() + ": another job writes it now",
                   "wait for it or stop it, or give this job another job.run_dir");
  return finding;
}

Finding check_ports(const job::Job& job) {
  auto address = parse_host_port(job.cluster.listen);
  if (!address.ok()) return problem("port", address.error());
  if (auto listening = door::listen_at(address.value()); !listening.ok())
    return problem("port", listening.error());
  if (auto endpoint = open_metrics(job.observe); !endpoint.ok())
    return problem("port", endpoint.error());
  const auto& figures = job.observe.metrics_listen;
  return fine("port", job.cluster.listen + (address.value().port == 0 ? " (any)" : "") +
                          " is free" +
                          (figures.empty() ? "" : ", and " + figures + " for figures"));
}

Finding check_key(const job::Job& job) {
  const auto key = given_to_head(job.cluster);
  if (!key.ok()) return problem("key", key.error());
  if (key.value())
    return fine("key", job.cluster.key.empty()
                           ? "of TROUPE_KEY"
                           : job.cluster.key.string() + ", for its owner alone");
  return fine("key", "one is made for the job, which listens on the loopback");
}

}  // namespace troupe::app
