#include "engine/profiling/this_machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

namespace troupe::engine {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

std::int32_t core_count() {
  return static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace troupe::engine
