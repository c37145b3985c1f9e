#include "runtime/job/changed_keys.hpp"

#include <map>
#include <sstream>

#include "runtime/job/load_job.hpp"

namespace troupe::job {

namespace {

constexpr std::size_t kValueMax = 40;

/// Every key of the job with its value, from the text that a job becomes: one walk over all keys
/// is enough (`to_toml`).
std::map<std::string, std::string> values_of(const Job& job) {
  LoadedJob loaded;
  loaded.job = job;
  std::istringstream text(to_toml(loaded));
  std::map<std::string, std::string> values;
  std::map<std::string, int> tables;
  std::string section, last;
  for (std::string line; std::getline(text, line);) {
    const auto remark = line.rfind("  # ");
    if (remark != std::string::npos) line.resize(remark);
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with("[[")) {
      const std::string name = line.substr(2, line.size() - 4);
      section = name + "[" + std::to_string(tables[name]++) + "]";
    } else if (line.front() == '[') {
      section = line.substr(1, line.size() - 2);
    } else if (line.front() == ' ' || line.front() == ']') {  // A value of several lines goes on.
      values[last] += line;
    } else {
      const auto equals = line.find(" = ");
      last = section + "." + line.substr(0, equals);
      values[last] = line.substr(equals + 3);
    }
  }
  return values;
}

}  // namespace

std::vector<ChangedKey> changed_keys(const Job& before, const Job& now) {
  const auto old_values = values_of(before), new_values = values_of(now);
  std::map<std::string, ChangedKey> changes;
  for (const auto& [key, value] : old_values) changes[key] = {key, value, ""};
  for (const auto& [key, value] : new_values) {
    changes[key].key = key;
    changes[key].now = value;
  }
  std::vector<ChangedKey> changed;
  for (auto& [key, change] : changes)
    if (change.before != change.now) changed.push_back(std::move(change));
  return changed;
}

std::string changes_text(const std::vector<ChangedKey>& changes) {
  std::string text;
  for (const ChangedKey& change : changes) {
    text += (text.empty() ? "" : ", ") + change.key;
    if (change.before.size() > kValueMax || change.now.size() > kValueMax) continue;
    text += " " + (change.before.empty() ? "(none)" : change.before) + " -> " +
            (change.now.empty() ? "(none)" : change.now);
  }
  return text;
}

}  // namespace troupe::job
