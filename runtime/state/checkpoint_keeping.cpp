#include "runtime/state/checkpoint_keeping.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/state/checkpoint.hpp"
#include "runtime/state/file_digest.hpp"
#include "runtime/state/incomplete_save.hpp"

namespace troupe::state {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kGone = ".gone";

Error failed(const std::string& doing, const fs::path& path, const std::string& why) {
  return {Errc::io_failed, doing + " failed: " + why, path.string(),
          "make room there and check its permissions, or set checkpoint.dir"};
}

Status flush_folder(const fs::path& folder) {
  const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return failed("opening the folder", folder, std::strerror(errno));
  const int flushed = ::fsync(handle);
  const int fault = errno;
  ::close(handle);
  // Some file systems cannot flush folders and say so.
  if (flushed != 0 && fault != EINVAL)
    return failed("flushing the folder to disk", folder, std::strerror(fault));
  return Done{};
}

/// The folders above may be as new as the one in them. Best effort: not all are the job's to open.
void flush_folders_above(const fs::path& folder) {
  fs::path below = folder;
  for (fs::path above = below.parent_path(); above != below; above = above.parent_path()) {
    (void)flush_folder(above);
    below = above;
  }
}

/// A whole new file, flushed to disk.
Status write_file(const fs::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return failed("opening for writing", path, std::strerror(errno));
  int fault = 0;
  while (!text.empty() && fault == 0) {
    const auto put = ::write(file, text.data(), text.size());
    if (put >= 0)
      text.remove_prefix(static_cast<std::size_t>(put));
    else if (errno != EINTR)
      fault = errno;
  }
  if (fault == 0 && ::fsync(file) != 0) fault = errno;
  ::close(file);
  if (fault != 0) return failed("writing", path, std::strerror(fault));
  return Done{};
}

/// The name goes first: what is removed half is no checkpoint any more.
Status remove_checkpoint(const fs::path& folder) {
  const fs::path gone =
      folder.parent_path() / ("." + folder.filename().string() + std::string(kGone));
  std::error_code code;
  fs::remove_all(gone, code);
  fs::rename(folder, gone, code);
  if (!code) fs::remove_all(gone, code);
  if (code) return failed("removing an older checkpoint", folder, code.message());
  return Done{};
}

/// What is new takes the place of what has the name, so that the name always stands for one of
/// them; where the file system cannot exchange two names, what had it goes first.
Status give_name(const fs::path& partial, const fs::path& folder) {
  std::error_code code;
  if (fs::exists(folder, code)) {
    if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0)
      return Done{};
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
      return failed("giving the checkpoint its name", folder, std::strerror(errno));
    if (auto removed = remove_checkpoint(folder); !removed.ok()) return removed;
  }
  fs::rename(partial, folder, code);
  if (code) return failed("giving the checkpoint its name", folder, code.message());
  return Done{};
}

/// What nobody could read must not take the place of what somebody can.
Result<std::string> readable_text(const CheckpointManifest& manifest, const fs::path& partial) {
  std::string text = manifest_json(manifest);
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes > kManifestBytesMax)
    return Error{Errc::infeasible,
                 "its manifest has " + std::to_string(bytes) + " bytes, more than the " +
                     std::to_string(kManifestBytesMax) + " that are read",
                 partial.string(), "spread parameters over fewer shards"};
  const auto read = parse_manifest(text);
  if (read.ok()) return text;
  Error error = read.error();
  error.where = partial.string();
  return error;
}

Status check_shares(const fs::path& partial, const CheckpointManifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    std::error_code code;
    const auto size = fs::file_size(partial / file.name, code);
    if (code == std::errc::no_such_file_or_directory)
      return Error{Errc::not_found, "a file that a node has written is not there as seen from here",
                   (partial / file.name).string(),
                   "all nodes must share this folder: set checkpoint.dir to one that they do"};
    if (code) return failed("asking for the size", partial / file.name, code.message());
    if (size != static_cast<std::uintmax_t>(file.bytes))
      return failed(
          "writing", partial / file.name,
          std::to_string(size) + " of " + std::to_string(file.bytes) + " bytes are there");
  }
  return Done{};
}

}  // namespace

fs::path partial_folder(const fs::path& folder, std::int64_t step, std::int64_t number) {
  return folder / ("." + checkpoint_folder(folder, step).filename().string() + ".partial-" +
                   std::to_string(number));
}

Status complete_checkpoint(const fs::path& partial, const fs::path& folder,
                           CheckpointManifest manifest, const std::string& resolved_job) {
  if (auto whole = check_shares(partial, manifest); !whole.ok()) return whole;
  if (auto put = write_file(partial / kCheckpointJobFile, resolved_job); !put.ok()) return put;
  manifest.files.push_back({kCheckpointJobFile, static_cast<std::int64_t>(resolved_job.size()),
                            sha256_of(resolved_job)});
  const auto text = readable_text(manifest, partial);
  if (!text.ok()) return text.error();
  if (auto put = write_file(partial / kManifestFile, text.value()); !put.ok()) return put;
  if (auto flushed = flush_folder(partial); !flushed.ok()) return flushed;
  if (auto named = give_name(partial, folder); !named.ok()) return named;
  const auto flushed = flush_folder(folder.parent_path());
  flush_folders_above(folder.parent_path());
  if (flushed.ok()) discard_checkpoint(partial);  // What had the name before, if anything.
  return flushed;
}

std::vector<Error> remove_older_checkpoints(const fs::path& folder, std::int32_t keep_last) {
  std::vector<Error> left;
  if (keep_last == 0) return left;
  auto all = checkpoints_in(folder);
  while (std::ssize(all) > keep_last) {
    if (auto removed = remove_checkpoint(all.begin()->second); !removed.ok())
      left.push_back(removed.error());
    all.erase(all.begin());
  }
  return left;
}

namespace {

/// A name in `superseded` that is free.
fs::path laid_aside(const fs::path& checkpoint, EpochNumber generation) {
  const std::string name = checkpoint.filename().string() + "-" + std::to_string(generation);
  const fs::path folder = checkpoint.parent_path() / "superseded";
  std::error_code code;
  fs::path free = folder / name;
  for (int number = 2; fs::exists(free, code); ++number)
    free = folder / (name + "." + std::to_string(number));
  return free;
}

}  // namespace

std::vector<Error> supersede_checkpoints(const fs::path& folder, std::int64_t step,
                                         EpochNumber generation) {
  std::vector<Error> left;
  auto all = incomplete_saves_in(folder);
  for (const auto& checkpoint : checkpoints_in(folder)) all.push_back(checkpoint);
  for (const auto& [number, path] : all) {
    if (number <= step) continue;
    std::error_code code;
    const fs::path target = laid_aside(path, generation);
    fs::create_directories(target.parent_path(), code);
    if (!code) fs::rename(path, target, code);
    if (code) left.push_back(failed("laying an older checkpoint aside", path, code.message()));
  }
  return left;
}

void discard_checkpoint(const fs::path& partial) {
  std::error_code ignored;
  fs::remove_all(partial, ignored);
}

void discard_leftovers(const fs::path& folder) {
  std::vector<fs::path> leftovers;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(".step-") &&
        (name.find(".partial-") != std::string::npos || name.ends_with(kGone)))
      leftovers.push_back(entry->path());
  }
  for (const fs::path& leftover : leftovers) discard_checkpoint(leftover);
}

}  // namespace troupe::state
