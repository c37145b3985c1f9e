#include "runtime/state/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "runtime/files/file_reads.hpp"
#include "runtime/state/element_types.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::state {

namespace {

Error failed(const std::filesystem::path& path, std::string_view doing) {
  return {Errc::io_failed, std::string(doing) + " failed: " + std::strerror(errno), path.string(),
          "check the file's permissions and its disk"};
}

Error not_safetensors(const std::filesystem::path& path, const std::string& why) {
  return {Errc::bad_data, "not a safetensors file: " + why, path.string(),
          "check that the file was copied completely, or write it again"};
}

// What is read at once: whoever watches hears of each such piece.
constexpr std::int64_t kPiece = std::int64_t{16} << 20;

// Reads exactly `count` bytes at `offset`; a short file is an error.
Status read_at(int file, void* to, std::int64_t count, std::int64_t offset,
               const std::filesystem::path& path) {
  auto* bytes = static_cast<char*>(to);
  files::ReadingFile reading(path);
  while (count > 0) {
    const auto piece = static_cast<std::size_t>(std::min(count, kPiece));
    const auto got = ::pread(file, bytes, piece, offset);
    reading.went_on();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(path, "reading");
    if (got == 0)
      return Error{Errc::io_failed, "the file ended while it was read", path.string(), ""};
    bytes += got;
    count -= got;
    offset += got;
  }
  return Done{};
}

int open_to_read(const std::filesystem::path& path) {
  const files::ReadingFile reading(path);
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

Result<std::int64_t> regular_file_size(int file, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return failed(path, "asking for the size");
  if (!S_ISREG(info.st_mode)) return not_safetensors(path, "it is not a regular file");
  return static_cast<std::int64_t>(info.st_size);
}

// The length field, checked against the limit and the file.
Result<std::int64_t> header_length(int file, std::int64_t file_bytes,
                                   const std::filesystem::path& path) {
  if (file_bytes < kLengthBytes)
    return not_safetensors(path,
                           "it has " + std::to_string(file_bytes) + " bytes, the shortest 10");
  std::array<unsigned char, kLengthBytes> field{};
  if (auto read = read_at(file, field.data(), kLengthBytes, 0, path); !read) return read.error();
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < field.size(); ++i) length |= std::uint64_t{field[i]} << (8 * i);
  const auto room =
      static_cast<std::uint64_t>(std::min(file_bytes - kLengthBytes, kHeaderBytesMax));
  if (length > room)
    return not_safetensors(path, "its header claims " + std::to_string(length) +
                                     " bytes, at most " + std::to_string(room) + " are possible");
  return static_cast<std::int64_t>(length);
}

}  // namespace

at::ScalarType scalar_type(ElementType type) {
  switch (type) {
    case ElementType::f64: return at::kDouble;
    case ElementType::f32: return at::kFloat;
    case ElementType::f16: return at::kHalf;
    case ElementType::bf16: return at::kBFloat16;
    case ElementType::i64: return at::kLong;
    case ElementType::i32: return at::kInt;
    case ElementType::u8: return at::kByte;
    case ElementType::boolean: return at::kBool;
  }
  return at::ScalarType::Undefined;
}

std::optional<ElementType> element_type(at::ScalarType type) {
  for (const auto known :
       {ElementType::f64, ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::i64,
        ElementType::i32, ElementType::u8, ElementType::boolean})
    if (scalar_type(known) == type) return known;
  return std::nullopt;
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      data_begin_(other.data_begin_),
      index_(std::move(other.index_)) {}

SafetensorsReader::~SafetensorsReader() {
  if (file_ >= 0) ::close(file_);
}

Result<SafetensorsReader> SafetensorsReader::open(const std::filesystem::path& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  reader.file_ = open_to_read(path);
  if (reader.file_ < 0 && errno == ENOENT)
    return Error{Errc::not_found, "no such file", path.string(), "check the path"};
  if (reader.file_ < 0) return failed(path, "opening");
  const auto file_bytes = regular_file_size(reader.file_, path);
  if (!file_bytes) return file_bytes.error();
  const auto length = header_length(reader.file_, file_bytes.value(), path);
  if (!length) return length.error();
  std::string json(static_cast<std::size_t>(length.value()), '\0');
  if (auto read = read_at(reader.file_, json.data(), length.value(), kLengthBytes, path); !read)
    return read.error();
  reader.data_begin_ = kLengthBytes + length.value();
  auto index = parse_tensor_index(json, file_bytes.value() - reader.data_begin_);
  if (!index) {
    auto error = std::move(index).error();
    error.where = path.string();
    return error;
  }
  reader.index_ = std::move(index).value();
  return reader;
}

const TensorEntry* SafetensorsReader::find(std::string_view name) const {
  const auto entry = std::find_if(index_.entries.begin(), index_.entries.end(),
                                  [&](const TensorEntry& known) { return known.name == name; });
  return entry == index_.entries.end() ? nullptr : &*entry;
}

Result<at::Tensor> SafetensorsReader::read(const std::string& name) const {
  const auto* entry = find(name);
  if (entry == nullptr) {
    std::vector<std::string> known;
    for (const auto& other : index_.entries) known.push_back(other.name);
    const auto nearest = nearest_word(name, known);
    return Error{Errc::not_found, "the file holds no tensor '" + name + "'", path_.string(),
                 nearest.empty() ? "" : "did you mean '" + nearest + "'?"};
  }
  try {
    auto tensor = at::empty(entry->shape, at::TensorOptions().dtype(scalar_type(entry->type)));
    if (entry->bytes() == 0) return tensor;
    if (auto done = read_at(file_, tensor.mutable_data_ptr(), entry->bytes(),
                            data_begin_ + entry->begin, path_);
        !done)
      return done.error();
    return tensor;
  } catch (const c10::Error& error) {
    return Error{Errc::io_failed, "tensor '" + name + "': " + error.what_without_backtrace(),
                 path_.string(), ""};
  }
}

Result<TensorMap> SafetensorsReader::read_all() const {
  TensorMap tensors;
  for (const auto& entry : index_.entries) {
    auto tensor = read(entry.name);
    if (!tensor) return tensor.error();
    tensors.emplace(entry.name, std::move(tensor).value());
  }
  return tensors;
}

Result<TensorMap> read_safetensors(const std::filesystem::path& path) {
  const auto reader = SafetensorsReader::open(path);
  if (!reader) return reader.error();
  return reader.value().read_all();
}

}  // namespace troupe::state
