#include "runtime/data/lengths/length_key.hpp"

#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "runtime/files/file_reads.hpp"

namespace troupe::data {

std::optional<std::array<unsigned char, 32>> sha256(std::string_view bytes) {
  // Fetched once: looking it up takes longer than a digest of a short text.
  static EVP_MD* const method = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  thread_local const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                                &EVP_MD_CTX_free);
  std::array<unsigned char, 32> digest{};
  if (method == nullptr || context == nullptr ||
      EVP_DigestInit_ex2(context.get(), method, nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1)
    return std::nullopt;
  return digest;
}

void KeyText::add(std::string_view field) {
  add(static_cast<std::int64_t>(field.size()));
  text_ += field;
}

void KeyText::add(std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  for (int shift = 0; shift < 64; shift += 8) text_ += static_cast<char>(bits >> shift & 0xFF);
}

std::optional<LengthKey> KeyText::key() const {
  const auto digest = sha256(text_);
  if (!digest) return std::nullopt;
  LengthKey key;
  std::copy_n(digest->begin(), key.size(), key.begin());
  return key;
}

std::optional<FileStamp> stamp_of(const std::filesystem::path& path) {
  const files::ReadingFile reading(path);
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return FileStamp{found.st_size, nanoseconds(found.st_mtim), nanoseconds(found.st_ctim)};
}

bool is_settled(const FileStamp& stamp, std::chrono::nanoseconds after) {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return now.count() - stamp.changed_ns >= after.count();
}

}  // namespace troupe::data
