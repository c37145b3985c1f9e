#include "tests/transport/nccl/fake/script.hpp"

#include <algorithm>
#include <sstream>

namespace fake_nccl {
namespace {

/// Cuts what follows `mark` off `text`; empty where there is none.
std::string cut(std::string& text, char mark) {
  const auto place = text.find(mark);
  if (place == std::string::npos) return "";
  const auto rest = text.substr(place + 1);
  text.resize(place);
  return rest;
}

int number(const std::string& text, int otherwise) {
  return text.empty() ? otherwise : std::stoi(text);
}

}  // namespace

void Script::set(const std::string& text) {
  const std::lock_guard lock(mutex_);
  rules_.clear();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    Rule rule;
    rule.rank = number(cut(word, ':'), -1);
    rule.left = number(cut(word, '#'), 1);
    rule.function = cut(word, '@');
    rule.fault.value = number(cut(word, '='), 0);
    rule.fault.kind = word;
    rules_.push_back(rule);
  }
}

std::optional<Fault> Script::at(const std::vector<std::string>& ways, int rank) {
  const std::lock_guard lock(mutex_);
  std::optional<Fault> fault;
  for (auto& rule : rules_) {
    if (rule.rank >= 0 && rule.rank != rank) continue;
    if (std::ranges::find(ways, rule.function) == ways.end()) continue;
    if (--rule.left == 0 && !fault) fault = rule.fault;
  }
  return fault;
}

}  // namespace fake_nccl
