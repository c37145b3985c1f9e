#include "app/key_page.hpp"

#include <algorithm>
#include <iostream>
#include <regex>
#include <vector>

#include "app/terminal.hpp"
#include "app/text_table.hpp"
#include "runtime/job/key_list.hpp"
#include "runtime/job/load_job.hpp"

namespace troupe::app {

namespace {

using job::KeyEntry;

/// `modules.vision.freeze` as the list has it: `modules.NAME.freeze`; `data.sources[0]` as
/// `data.sources[]`.
std::string as_listed(const std::string& written) {
  const std::string word = std::regex_replace(written, std::regex("\\[[0-9]+\\]"), "[]");
  for (const std::string section : {"modules.", "parallel."}) {
    if (!word.starts_with(section)) continue;
    const auto end = word.find('.', section.size());
    const auto name = word.substr(section.size(), end - section.size());
    if (section == "parallel." && (name == "mode" || name == "pipelines" || name == "replicas"))
      continue;
    return section + "NAME" + (end == std::string::npos ? "" : word.substr(end));
  }
  return word;
}

bool is_in(const KeyEntry& entry, const std::string& path) {
  return entry.path == path || entry.path.starts_with(path + ".") ||
         entry.path.starts_with(path + "[]");
}

/// The key itself or those of a section; else keys whose last word it is.
std::vector<KeyEntry> matching(const std::vector<KeyEntry>& keys, const std::string& word) {
  std::vector<KeyEntry> found;
  const auto copy = [&](auto wanted) {
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(found), wanted);
  };
  const auto path = as_listed(word);
  copy([&](const KeyEntry& entry) { return word.empty() || is_in(entry, path); });
  if (found.empty()) copy([&](const KeyEntry& entry) { return entry.key() == word; });
  return found;
}

void print(const std::vector<KeyEntry>& keys) {
  std::string section;
  for (const auto& entry : keys) {
    if (entry.section != section) std::cout << '\n' << entry.section << '\n';
    section = entry.section;
    const auto value = entry.preset.empty() ? "" : " = " + entry.preset;
    const auto columns = terminal_width();
    std::cout << "  " << wrapped(entry.key() + value + " (" + entry.takes + ")", 6, columns)
              << '\n';
    if (!entry.meaning.empty()) std::cout << "      " << wrapped(entry.meaning, 6, columns) << '\n';
  }
}

}  // namespace

int print_keys(const std::string& word) {
  const auto keys = matching(job::key_list(), word);
  if (keys.empty()) {
    const auto near = job::nearest_key(word);
    return report(usage_error("'" + word + "' is no key or section of a job file",
                              !near.instead.empty() ? near.instead
                              : near.path.empty()   ? "list them all: troupe help keys"
                                                    : "did you mean " + near.path + "?"));
  }
  if (word.empty())
    std::cout
        << "Keys of a job file: their defaults, what they take, what they mean.\n"
           "On the command line: train.steps=10. One section or key: troupe help keys train.\n";
  print(keys);
  return kDone;
}

}  // namespace troupe::app
