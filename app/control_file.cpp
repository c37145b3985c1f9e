#include "app/control_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/files/file_reads.hpp"
#include "runtime/files/read_stream.hpp"
#include "runtime/vocabulary/library_words.hpp"

namespace troupe::app {

namespace {

namespace fs = std::filesystem;

fs::path file_of(const fs::path& run) { return run / "control"; }

/// Where it is written first. Of one name: what a head that was killed meanwhile leaves here, with
/// its key, the next one takes away.
fs::path beside(const fs::path& run) { return run / "control.new"; }

Error failed(const fs::path& file, const std::string& what) {
  return {Errc::io_failed, what + ": " + std::strerror(errno), file.string(),
          "look at the permissions and the disk of the run folder"};
}

void take_away(const fs::path& file) {
  std::error_code ignored;
  fs::remove(file, ignored);
}

int look_at(const fs::path& file, struct stat& facts) {
  const files::ReadingFile reading(file);
  return ::stat(file.c_str(), &facts);
}

}  // namespace

Status write_control(const fs::path& run, const ControlFile& control) {
  const nlohmann::ordered_json json = {{"host", control.host},
                                       {"local", control.local},
                                       {"far", control.far},
                                       {"key", control.key.text()},
                                       {"process", control.process}};
  const std::string text = json.dump() + "\n";
  // Beside it first: who looks meanwhile sees the whole of it or none.
  const fs::path file = file_of(run), made = beside(run);
  take_away(made);
  const int descriptor = ::open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return failed(file, "it cannot be made");
  const bool written =
      ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  Status status = Done{};
  if (!written) status = failed(file, "writing failed");
  ::close(descriptor);
  if (status && ::rename(made.c_str(), file.c_str()) != 0)
    status = failed(file, "it cannot be put in its place");
  if (!status) take_away(made);
  return status;
}

void remove_control(const fs::path& run, const ControlFile& own) {
  const auto there = read_control(run);
  const bool is_own =
      !there.ok() || (there.value().host == own.host && there.value().process == own.process);
  if (is_own) take_away(file_of(run));
}

Result<ControlFile> read_control(const fs::path& run) {
  const fs::path file = file_of(run);
  struct stat facts {};
  if (look_at(file, facts) != 0)
    return Error{Errc::not_found, "no job runs in this folder", run.string(),
                 "start it: troupe train --resume " + run.string()};
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Error{Errc::invalid_argument, "others may read the job's key", file.string(),
                 "chmod 600 " + file.string()};
  const auto text = files::read_whole(file);
  if (!text) return failed(file, "it cannot be read");
  try {
    const auto json = nlohmann::json::parse(*text);
    const auto key = door::JobKey::parse(json.at("key").get<std::string>(), file.string());
    if (!key.ok()) return key.error();
    return ControlFile{json.at("host").get<std::string>(), json.at("local").get<std::string>(),
                       json.at("far").get<std::string>(), key.value(),
                       json.value("process", std::int64_t{0})};
  } catch (const nlohmann::json::exception& fault) {
    return Error{Errc::bad_data, "it makes no sense: " + without_code(fault.what()), file.string(),
                 "start the job again"};
  }
}

}  // namespace troupe::app
