#include "runtime/door/job_key.hpp"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace troupe::door {

namespace {

constexpr const char* kVariable = "TROUPE_KEY";
constexpr const char* kMakeOne = "make one with `troupe key new FILE`";

/// A descriptor that is closed in the end.
struct Descriptor {
  int number = -1;
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

Error failed(const std::string& what, const std::filesystem::path& file, int code) {
  return {code == ENOENT ? Errc::not_found : Errc::io_failed, what + ": " + std::strerror(code),
          file.string(), code == ENOENT ? kMakeOne : "check the folder and its rights"};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

JobKey JobKey::random() {
  JobKey key;
  // Without randomness there is no key, and nothing may run as if there were one.
  if (RAND_bytes(key.bytes_.data(), kKeyBytes) != 1) std::abort();
  return key;
}

Result<JobKey> JobKey::parse(std::string_view text, const std::string& where) {
  const auto digits = trimmed(text);
  JobKey key;
  bool sound = digits.size() == 2 * kKeyBytes;
  for (std::size_t i = 0; sound && i < kKeyBytes; ++i) {
    const char* begin = digits.data() + 2 * i;
    const auto parsed = std::from_chars(begin, begin + 2, key.bytes_[i], 16);
    sound = parsed.ec == std::errc{} && parsed.ptr == begin + 2;
  }
  if (!sound)
    return Error{Errc::invalid_argument, "this is not a key, which has 64 hexadecimal digits",
                 where, kMakeOne};
  return key;
}

std::string JobKey::text() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes_) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Status write_key(const std::filesystem::path& file, const JobKey& key) {
  const Descriptor made(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (made.number < 0 && errno == EEXIST)
    return Error{Errc::invalid_argument, "the file exists, and may be the key of a job",
                 file.string(), "name another file, or remove this one"};
  if (made.number < 0) return failed("cannot write the key", file, errno);
  const std::string text = key.text() + "\n";
  if (write(made.number, text.data(), text.size()) != std::ssize(text) || fsync(made.number) != 0)
    return failed("cannot write the key", file, errno);
  return Done{};
}

Result<JobKey> read_key(const std::filesystem::path& file) {
  const Descriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (opened.number < 0) return failed("cannot read the key", file, errno);
  struct stat facts {};
  if (fstat(opened.number, &facts) != 0) return failed("cannot read the key", file, errno);
  if ((facts.st_mode & 077) != 0)
    return Error{Errc::invalid_argument, "others may read this key, so it proves nothing",
                 file.string(), "chmod 600 " + file.string() + ", or better make a new one"};
  char text[256];
  const auto bytes = read(opened.number, text, sizeof text);
  if (bytes < 0) return failed("cannot read the key", file, errno);
  return JobKey::parse({text, static_cast<std::size_t>(bytes)}, file.string());
}

Result<std::optional<JobKey>> key_of_environment() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == 0) return std::optional<JobKey>{};
  auto key = JobKey::parse(text, kVariable);
  if (!key.ok()) {
    Error error = std::move(key).error();
    error.fix = "it holds the key itself; a file is named by cluster.key or --key";
    return error;
  }
  return std::optional<JobKey>{key.value()};
}

}  // namespace troupe::door
