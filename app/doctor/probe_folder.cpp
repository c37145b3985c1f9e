#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "app/doctor/probes.hpp"
#include "app/doctor/system_files.hpp"

namespace troupe::app {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kWritten = std::size_t{8} << 20;

struct KnownKind {
  unsigned long magic;
  const char* name;
  bool is_network = false, is_memory = false, is_of_container = false;
};

/// Those that <linux/magic.h> lacks by their numbers in the kernel.
constexpr KnownKind kKinds[] = {
    {EXT4_SUPER_MAGIC, "ext4"},
    {XFS_SUPER_MAGIC, "xfs"},
    {BTRFS_SUPER_MAGIC, "btrfs"},
    {F2FS_SUPER_MAGIC, "f2fs"},
    {0x2fc12fc1, "zfs"},
    {NFS_SUPER_MAGIC, "nfs", true},
    {SMB_SUPER_MAGIC, "smb", true},
    {0xff534d42, "cifs", true},
    {0xfe534d42, "smb2", true},
    {0x0bd00bd0, "lustre", true},
    {0x00c36400, "ceph", true},
    {0x47504653, "gpfs", true},
    {0x19830326, "beegfs", true},
    {V9FS_MAGIC, "9p", true},
    {FUSE_SUPER_MAGIC, "fuse", true},
    {TMPFS_MAGIC, "tmpfs", false, true},
    {RAMFS_MAGIC, "ramfs", false, true},
    {OVERLAYFS_SUPER_MAGIC, "overlay", false, false, true},
};

void note_kind(FolderFacts& facts) {
  struct statfs info {};
  if (statfs(facts.there.c_str(), &info) != 0) return;
  facts.free = Bytes{static_cast<std::int64_t>(info.f_bavail) * info.f_bsize};
  const auto magic = static_cast<unsigned long>(info.f_type) & 0xffffffffUL;
  char number[24];
  std::snprintf(number, sizeof number, "0x%lx", magic);
  facts.file_system = number;
  for (const KnownKind& kind : kKinds)
    if (kind.magic == magic) {
      facts.file_system = kind.name;
      facts.is_network = kind.is_network;
      facts.is_memory = kind.is_memory;
      facts.is_of_container = kind.is_of_container;
    }
}

Error cannot(const char* what) {
  return {Errc::io_failed, std::string("a file cannot be ") + what + ": " + std::strerror(errno),
          "", "choose a folder that this user can write (job.run_dir), or make room"};
}

/// Everything that a run does with files there, with one of its own, whose name is completed in
/// `path`.
Status try_file(std::string& path, FolderFacts& facts) {
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return cannot("made");
  const std::vector<char> bytes(kWritten, 't');
  const auto begin = std::chrono::steady_clock::now();
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto more = write(file, bytes.data() + done, bytes.size() - done);
    if (more <= 0) break;
    done += static_cast<std::size_t>(more);
  }
  const bool is_written = done == bytes.size() && fsync(file) == 0;
  Status tried = is_written ? Status(Done{}) : Status(cannot("written"));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  facts.write_mb_per_s = static_cast<double>(kWritten) / 1e6 / took.count();
  facts.has_locks = flock(file, LOCK_EX | LOCK_NB) == 0;
  close(file);
  return tried;
}

/// UCX's files in `folder`.
std::set<std::string> queue_files(const fs::path& folder) {
  std::set<std::string> files;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code))
    if (entry.path().filename().string().starts_with("ucx_shm_posix_"))
      files.insert(entry.path().string());
  return files;
}

/// Takes those out that a process has mapped, which may be another user's and cannot be asked.
void keep_unused(std::set<std::string>& files, const fs::path& root) {
  std::error_code code;
  for (const auto& process : fs::directory_iterator(root / "proc", code)) {
    const auto maps = text_of(process.path() / "maps");
    if (maps)
      std::erase_if(files, [&](const auto& file) { return maps->find(file) != maps->npos; });
  }
}

}  // namespace

FolderFacts probe_folder(const fs::path& folder) {
  FolderFacts facts;
  std::error_code code;
  facts.wanted = fs::absolute(folder, code).lexically_normal();
  if (facts.wanted.filename().empty()) facts.wanted = facts.wanted.parent_path();
  facts.there = facts.wanted;
  while (!fs::exists(facts.there, code) && facts.there.has_relative_path())
    facts.there = facts.there.parent_path();
  if (!fs::is_directory(facts.there, code)) {
    facts.failed = {Errc::io_failed, "it is a file, or cannot be looked at", "",
                    "choose another folder (job.run_dir)"};
    return facts;
  }
  note_kind(facts);
  std::string file = (facts.there / ".troupe-doctor-XXXXXX").string();
  auto tried = try_file(file, facts);
  const std::string renamed = file + ".renamed";
  if (tried.ok() && std::rename(file.c_str(), renamed.c_str()) != 0) tried = cannot("renamed");
  fs::remove(file, code);
  fs::remove(renamed, code);
  if (!tried.ok()) facts.failed = tried.error();
  return facts;
}

SharedMemoryFacts probe_shared_memory(const fs::path& folder, const fs::path& root) {
  SharedMemoryFacts facts;
  struct statvfs space {};
  facts.is_there = statvfs(folder.c_str(), &space) == 0;
  const auto bytes = [&](auto blocks) {
    return Bytes{static_cast<std::int64_t>(blocks * space.f_frsize)};
  };
  facts.total = bytes(space.f_blocks);
  facts.free = bytes(space.f_bavail);
  auto files = queue_files(folder);
  if (files.empty()) return facts;
  keep_unused(files, root);
  facts.leftovers = static_cast<std::int64_t>(files.size());
  std::error_code code;
  for (const auto& file : files)
    if (const auto size = fs::file_size(file, code); !code)
      facts.leftover_bytes += Bytes{static_cast<std::int64_t>(size)};
  return facts;
}

}  // namespace troupe::app
