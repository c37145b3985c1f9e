#include "runtime/state/file_digest.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/files/file_reads.hpp"

namespace troupe::state {

namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;

Error failed(const std::filesystem::path& path, const std::string& doing) {
  return {Errc::io_failed, doing + " failed: " + std::strerror(errno), path.string(),
          "check the file's permissions and its disk"};
}

}  // namespace

struct Sha256::State {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr);
}

Sha256::~Sha256() = default;

void Sha256::add(const void* bytes, std::size_t count) {
  EVP_DigestUpdate(state_->context.get(), bytes, count);
}

std::string Sha256::text() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size);
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size());
  return digest.text();
}

Result<std::string> sha256_of_file(const std::filesystem::path& path) {
  files::ReadingFile reading(path);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed(path, "opening");
  Sha256 digest;
  std::vector<char> block(kBlock);
  for (;;) {
    const auto got = ::read(file, block.data(), block.size());
    reading.went_on();
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      auto error = failed(path, "reading");
      ::close(file);
      return error;
    }
    if (got == 0) break;
    digest.add(block.data(), static_cast<std::size_t>(got));
  }
  ::close(file);
  return digest.text();
}

}  // namespace troupe::state
