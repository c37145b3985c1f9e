#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include <c10/util/Exception.h>

#include "runtime/state/element_types.hpp"
#include "runtime/state/safetensors.hpp"

namespace troupe::state {

namespace {

constexpr std::int64_t kBlock = std::int64_t{8} << 20;
constexpr std::int64_t kWorthAThread = std::int64_t{1}
                                       << 18;  // Its hash takes 150 us, a thread 30.

// A file under a temporary name that is removed again unless it was committed.
class PendingFile {
 public:
  explicit PendingFile(std::filesystem::path target)
      : target_(std::move(target)),
        temporary_(target_.string() + ".tmp-" + std::to_string(::getpid())),
        file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {}
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile() {
    if (file_ < 0) return;
    ::close(file_);
    ::unlink(temporary_.c_str());
  }

  bool opened() const { return file_ >= 0; }

  Error error(std::string_view doing) const {
    return {Errc::io_failed, std::string(doing) + " failed: " + std::strerror(errno),
            target_.string(), errno == ENOSPC ? "free some disk space" : ""};
  }

  Status write(const void* from, std::int64_t count) {
    const auto* bytes = static_cast<const char*>(from);
    while (count > 0) {
      const auto put =
          ::write(file_, bytes, static_cast<std::size_t>(std::min<std::int64_t>(count, kBlock)));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return error("writing");
      // The disk begins with this block while the next one is written; the last word has fsync.
      if (put == kBlock) (void)::sync_file_range(file_, written_, put, SYNC_FILE_RANGE_WRITE);
      written_ += put;
      bytes += put;
      count -= put;
    }
    return Done{};
  }

  // The contents reach the disk before the name does, and the name before this returns.
  Status commit() {
    if (::fsync(file_) != 0) return error("flushing to disk");
    if (::rename(temporary_.c_str(), target_.c_str()) != 0) return error("renaming");
    ::close(std::exchange(file_, -1));
    const auto folder = target_.has_parent_path() ? target_.parent_path() : ".";
    const int handle = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return error("opening the folder");
    const int flushed = ::fsync(handle);
    ::close(handle);
    // Some file systems cannot flush folders and say so; the rename stands all the same.
    if (flushed != 0 && errno != EINVAL) return error("flushing the folder to disk");
    return Done{};
  }

 private:
  std::int64_t written_ = 0;
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int file_;
};

// Hashes one piece after the other, each on a thread of its own while the caller writes it: a core
// that has nothing else to do takes as long for the one as for the other.
class HashingBeside {
 public:
  explicit HashingBeside(Sha256* digest) : digest_(digest) {}

  // `bytes` of `from`, which `kept` keeps alive. Waits for the piece before.
  void add(const void* from, std::int64_t bytes, at::Tensor kept) {
    if (digest_ == nullptr) return;
    wait();
    auto hash = [digest = digest_, from, bytes, kept = std::move(kept)] {
      digest->add(from, static_cast<std::size_t>(bytes));
    };
    if (bytes < kWorthAThread) return hash();
    try {
      under_way_ = std::async(std::launch::async, hash);
    } catch (const std::system_error&) {
      hash();  // The system has no thread left.
    }
  }

  void wait() {
    if (under_way_.valid()) under_way_.get();
  }

 private:
  Sha256* digest_;
  std::future<void> under_way_;
};

// Lays the tensors out: larger elements first, so that each begins at a multiple of its size.
Result<TensorIndex> lay_out(const TensorMap& tensors, const std::filesystem::path& path) {
  TensorIndex index;
  for (const auto& [name, tensor] : tensors) {
    const auto refuse = [&](const std::string& why) {
      return Error{Errc::invalid_argument, "tensor '" + name + "' " + why, path.string(), ""};
    };
    if (name == "__metadata__") return refuse("has a name that the format keeps for itself");
    if (!tensor.defined()) return refuse("is undefined");
    const auto type = element_type(tensor.scalar_type());
    if (!type)
      return refuse(std::string("has type ") + c10::toString(tensor.scalar_type()) +
                    ", which is not written to safetensors files");
    index.entries.push_back({name, *type, tensor.sizes().vec(), 0, 0});
  }
  std::sort(index.entries.begin(), index.entries.end(), [](const auto& a, const auto& b) {
    const auto size_a = element_bytes(a.type), size_b = element_bytes(b.type);
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  std::int64_t position = 0;
  for (auto& entry : index.entries) {
    entry.begin = position;
    position += static_cast<std::int64_t>(tensors.at(entry.name).nbytes());
    entry.end = position;
  }
  return index;
}

Status write_tensors(PendingFile& file, const TensorIndex& index, const TensorMap& tensors,
                     Sha256* digest) {
  const std::string header = encode_tensor_index(index);
  HashingBeside hashing(digest);
  hashing.add(header.data(), static_cast<std::int64_t>(header.size()), {});
  if (auto put = file.write(header.data(), static_cast<std::int64_t>(header.size())); !put)
    return put;
  for (const auto& entry : index.entries) {
    const auto plain = tensors.at(entry.name).detach().cpu().contiguous();
    hashing.add(plain.const_data_ptr(), entry.bytes(), plain);
    if (auto put = file.write(plain.const_data_ptr(), entry.bytes()); !put) return put;
  }
  hashing.wait();
  return Done{};
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                         const std::map<std::string, std::string>& metadata, Sha256* digest) {
  try {
    auto index = lay_out(tensors, path);
    if (!index) return index.error();
    index.value().metadata = metadata;
    index.value().metadata["format"] = "pt";
    std::error_code code;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), code);
    if (code)
      return Error{Errc::io_failed, "creating the folder failed: " + code.message(), path.string(),
                   ""};
    PendingFile file(path);
    if (!file.opened()) return file.error("opening for writing");
    if (auto put = write_tensors(file, index.value(), tensors, digest); !put) return put;
    return file.commit();
  } catch (const c10::Error& error) {
    return Error{Errc::io_failed, error.what_without_backtrace(), path.string(), ""};
  }
}

}  // namespace troupe::state
