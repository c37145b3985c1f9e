#include "models/family/family.hpp"

#include <algorithm>
#include <sstream>

namespace troupe::models {

namespace {

/// Notes values outside their ranges.
class RangeCheck : public ConfigFields {
 public:
  std::vector<ConfigProblem> found;

  void flag(const char*, bool&) override {}
  void integer(const char* key, std::int32_t& value, std::int64_t min, std::int64_t max) override {
    if (value < min || value > max) add(key, value, min, max);
  }
  void number(const char* key, double& value, double min, double max) override {
    if (!(value >= min && value <= max)) add(key, value, min, max);
  }
  void word(const char* key, std::string& value, const std::vector<std::string>& words) override {
    if (std::find(words.begin(), words.end(), value) != words.end()) return;
    std::string choices;
    for (const auto& word : words) choices += (choices.empty() ? "" : ", ") + word;
    found.push_back({key, "there is no '" + value + "'", "choose one of " + choices});
  }

 private:
  template <class Value>
  void add(const char* key, Value value, Value min, Value max) {
    std::ostringstream message, fix;
    message << value << " is outside " << min << " .. " << max;
    fix << "give a value from " << min << " to " << max;
    found.push_back({key, message.str(), fix.str()});
  }
  void add(const char* key, std::int32_t value, std::int64_t min, std::int64_t max) {
    add(key, std::int64_t{value}, min, max);
  }
};

}  // namespace

std::vector<ConfigProblem> problems_of(const Family& family, const FamilyConfig& config) {
  RangeCheck ranges;
  FamilyConfig copy = config;
  family.fields(ranges, copy);
  if (!ranges.found.empty() || !family.problems) return std::move(ranges.found);
  return family.problems(config);
}

}  // namespace troupe::models
