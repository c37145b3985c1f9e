#include "app/spawn.hpp"

#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <string_view>

extern char** environ;

namespace troupe::app {

namespace {

/// Attributes of a child: own process group, no blocked signals.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&attributes_); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

/// This process's environment with the key in it: it is readable by this user alone.
std::vector<std::string> environment_with(const std::string& key) {
  constexpr std::string_view kName = "TROUPE_KEY=";
  std::vector<std::string> variables;
  if (!key.empty()) variables.push_back(std::string(kName) + key);
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!std::string_view(*variable).starts_with(kName)) variables.emplace_back(*variable);
  return variables;
}

/// As system calls take lists of texts. Points into `texts`.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

Result<pid_t> spawn_self(std::vector<std::string> words, const std::string& key) {
  const SpawnAttributes attributes;
  auto variables = environment_with(key);
  const auto environment = pointers_to(variables);
  const auto arguments = pointers_to(words);
  pid_t pid = 0;
  const int code = posix_spawn(&pid, "/proc/self/exe", nullptr, attributes.get(), arguments.data(),
                               environment.data());
  if (code != 0)
    return Error{Errc::io_failed,
                 "cannot start a process: " + std::string(std::strerror(code)),
                 {},
                 "check the limits of this machine (ulimit -u)"};
  return pid;
}

}  // namespace troupe::app
