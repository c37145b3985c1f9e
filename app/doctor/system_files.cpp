#include "app/doctor/system_files.hpp"

#include <fstream>
#include <sstream>

namespace troupe::app {

namespace fs = std::filesystem;

std::optional<std::string> text_of(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream) return std::nullopt;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t number = 0;
  if (stream >> number) return number;
  return std::nullopt;
}

std::optional<std::int64_t> number_behind(const fs::path& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key + ":")) continue;
    std::istringstream rest(line.substr(key.size() + 1));
    std::int64_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

std::optional<fs::path> group_folder(const fs::path& root, const std::string& controller) {
  std::error_code code;
  std::ifstream groups(root / "proc/self/cgroup");
  std::optional<fs::path> second;
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), next = line.find(':', first + 1);
    if (first == std::string::npos || next == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, next - first - 1) + ",";
    const fs::path below = fs::path(line.substr(next + 1)).relative_path();
    const bool is_first_kind = kinds.find("," + controller + ",") != std::string::npos;
    if (!is_first_kind && kinds != ",,") continue;
    const fs::path mount = root / "sys/fs/cgroup" / (is_first_kind ? controller : "");
    if (is_first_kind) {
      if (fs::is_directory(mount / below, code)) return mount / below;
      if (fs::is_directory(mount, code)) return mount;
    }
    if (fs::exists(mount / below / "cgroup.controllers", code))
      second = mount / below;
    else if (fs::exists(mount / "cgroup.controllers", code))
      second = mount;
  }
  return second;
}

}  // namespace troupe::app
