#include "app/keys.hpp"

#include "app/read_limits.hpp"
#include "runtime/files/file_reads.hpp"

namespace troupe::app {

namespace {

GivenKey key_in(const std::filesystem::path& file) {
  const files::ReadingFile reading(file);
  auto key = door::read_key(file);
  if (!key.ok()) return std::move(key).error();
  return std::optional<door::JobKey>{key.value()};
}

GivenKey key_of_job_file(const std::string& job_file) {
  if (job_file.empty()) return std::optional<door::JobKey>{};
  auto own = load_job_in_time(job_file, {});
  if (!own.ok()) return std::move(own).error();
  const auto& file = own.value().job.cluster.key;
  return file.empty() ? GivenKey{std::optional<door::JobKey>{}} : key_in(file);
}

GivenKey given_to_node(const std::string& file, const std::string& job_file) {
  if (!file.empty()) return key_in(file);
  auto key = door::key_of_environment();
  if (!key.ok() || key.value()) return key;
  return key_of_job_file(job_file);
}

/// The key of this user's job at that port of the loopback, once it is there.
actors::KeySource loopback_source(const HostPort& address) {
  return [address]() -> Result<door::JobKey> {
    auto key = door::find_loopback_key(address.port);
    if (!key.ok()) return std::move(key).error();
    if (key.value()) return *key.value();
    return Error{Errc::not_found, "no job of yours listens there", address.text(),
                 "start `troupe train` first, or give the key of a job that has one: --key FILE"};
  };
}

}  // namespace

GivenKey given_to_head(const job::Cluster& cluster) {
  return cluster.key.empty() ? door::key_of_environment() : key_in(cluster.key);
}

Result<HeadKey> head_key(const job::Cluster& cluster, std::uint16_t port) {
  auto given = given_to_head(cluster);
  if (!given.ok()) return std::move(given).error();
  if (given.value()) return HeadKey{*given.value(), {}};
  const auto key = door::JobKey::random();
  auto offered = door::LoopbackKey::offer(port, key);
  if (!offered.ok()) return std::move(offered).error();
  return HeadKey{key, std::make_shared<door::LoopbackKey>(std::move(offered).value())};
}

Result<actors::KeySource> node_key(const std::string& file, const std::string& job_file,
                                   const HostPort& address) {
  auto given = given_to_node(file, job_file);
  if (!given.ok()) return std::move(given).error();
  if (given.value())
    return actors::KeySource{[key = *given.value()]() -> Result<door::JobKey> { return key; }};
  if (address.is_loopback()) return loopback_source(address);
  return Error{Errc::invalid_argument,
               "a job at an address that other machines reach lets nobody in without its key",
               address.text(),
               "give the file that `troupe key new` made for the job: --key FILE or TROUPE_KEY"};
}

}  // namespace troupe::app
