#include "app/solve/problem.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>

#include "runtime/vocabulary/library_words.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::app {

namespace {

constexpr const char* kSeeSchema =
    "`troupe solve --schema` with the problem's name prints the input";
const Json kEmptyArray = Json::array();
const Json kEmptyObject = Json::object();

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

std::string shown(double value) { return shown(Json(value)); }

std::string out_of_range(const Json& value, double minimum, double maximum) {
  return "expected a number in [" + shown(minimum) + ", " + shown(maximum) + "], found " +
         shown(value);
}

// What must be seen while the text is read: a field that stands twice in one object, of which
// JSON's library would silently keep the last, and depth. (Its parser callback takes quadratic time
// in long arrays.)
class Faults final : public nlohmann::json_sax<Json> {
 public:
  /// What is wrong with `text`, JSON or not, before it is built; none where it is not JSON.
  static std::optional<Error> of(const std::string& text) {
    Faults finder;
    Json::sax_parse(text, &finder);
    return std::move(finder.found_);
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }
  bool start_object(std::size_t) override { return keys_.emplace_back(), enter(); }
  bool end_object() override { return keys_.pop_back(), --depth_, true; }
  bool key(std::string& name) override {
    if (keys_.back().insert(name).second) return true;
    found_ = Error{Errc::invalid_argument, "the field '" + name + "' stands twice in one object",
                   "input", "keep one of them"};
    return false;
  }

 private:
  /// Inputs of all problems are a few levels deep; what prints a value calls itself for each.
  static constexpr int kDepthMax = 64;

  bool enter() {
    if (++depth_ <= kDepthMax) return true;
    found_ = Error{Errc::invalid_argument,
                   "values stand in one another more than " + std::to_string(kDepthMax) + " deep",
                   "input", "`troupe solve --schema PROBLEM` shows what the problem takes"};
    return false;
  }

  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;  // Of each object around the present place.
  std::optional<Error> found_;
};

std::string nearest(double value, double minimum, double maximum) {
  return "nearest choice: " + shown(std::clamp(value, minimum, maximum));
}

}  // namespace

Reader::Reader(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {
  if (!object.is_object()) fail("", "expected an object, found " + shown(object));
}

void Reader::fail(std::string key, std::string message, std::string fix) {
  if (error_) return;
  const std::string where = key.empty() ? path_ : path_ + "." + key;
  if (fix.empty()) fix = kSeeSchema;
  error_ = Error{Errc::invalid_argument, std::move(message), where, std::move(fix)};
}

bool Reader::has(const std::string& key) const {
  return object_->is_object() && object_->contains(key);
}

bool Reader::is_array(const std::string& key) const {
  return has(key) && (*object_)[key].is_array();
}

const Json* Reader::find(const std::string& key, const char* expected) {
  if (!has(key)) {
    fail(key, std::string("missing; expected ") + expected);
    return nullptr;
  }
  return &(*object_)[key];
}

double Reader::number(const std::string& key, double minimum, double maximum) {
  const Json* value = find(key, "a number");
  if (!value) return minimum;
  if (!value->is_number()) return fail(key, "expected a number, found " + shown(*value)), minimum;
  const double number = value->get<double>();
  if (!(number >= minimum && number <= maximum)) {
    fail(key, out_of_range(*value, minimum, maximum), nearest(number, minimum, maximum));
    return minimum;
  }
  return number;
}

double Reader::number_or(const std::string& key, double fallback, double minimum, double maximum) {
  return has(key) ? number(key, minimum, maximum) : fallback;
}

std::int64_t Reader::integer(const std::string& key, std::int64_t minimum, std::int64_t maximum) {
  const Json* value = find(key, "an integer");
  if (!value) return minimum;
  const bool too_large = value->is_number_unsigned() &&
                         value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (!value->is_number_integer() || too_large)
    return fail(key, "expected an integer, found " + shown(*value)), minimum;
  const auto number = value->get<std::int64_t>();
  if (number < minimum || number > maximum) {
    fail(key,
         "expected an integer in [" + std::to_string(minimum) + ", " + std::to_string(maximum) +
             "], found " + shown(*value),
         "nearest choice: " + std::to_string(std::clamp(number, minimum, maximum)));
    return minimum;
  }
  return number;
}

std::int64_t Reader::integer_or(const std::string& key, std::int64_t fallback, std::int64_t minimum,
                                std::int64_t maximum) {
  return has(key) ? integer(key, minimum, maximum) : fallback;
}

std::string Reader::text(const std::string& key) {
  const Json* value = find(key, "a string");
  if (!value) return {};
  if (!value->is_string()) return fail(key, "expected a string, found " + shown(*value)), "";
  return value->get<std::string>();
}

std::string Reader::text_or(const std::string& key, const std::string& fallback) {
  return has(key) ? text(key) : fallback;
}

bool Reader::boolean_or(const std::string& key, bool fallback) {
  if (!has(key)) return fallback;
  const Json& value = (*object_)[key];
  if (!value.is_boolean())
    return fail(key, "expected true or false, found " + shown(value)), fallback;
  return value.get<bool>();
}

std::vector<double> Reader::numbers(const std::string& key, double minimum, double maximum) {
  const Json& list = array(key);
  std::vector<double> numbers;
  numbers.reserve(list.size());
  for (std::size_t i = 0; i < list.size() && ok(); ++i) {
    const std::string item = key + "[" + std::to_string(i) + "]";
    if (!list[i].is_number()) {
      fail(item, "expected a number, found " + shown(list[i]));
    } else if (const double number = list[i].get<double>();
               !(number >= minimum && number <= maximum)) {
      fail(item, out_of_range(list[i], minimum, maximum), nearest(number, minimum, maximum));
    } else {
      numbers.push_back(number);
    }
  }
  return numbers;
}

std::vector<std::int64_t> Reader::integers(const std::string& key, std::int64_t minimum,
                                           std::int64_t maximum) {
  const Json& list = array(key);
  std::vector<std::int64_t> numbers;
  numbers.reserve(list.size());
  for (std::size_t i = 0; i < list.size() && ok(); ++i) {
    const std::string item = key + "[" + std::to_string(i) + "]";
    if (!list[i].is_number_integer()) {
      fail(item, "expected an integer, found " + shown(list[i]));
    } else if (const auto number = list[i].get<std::int64_t>();
               number < minimum || number > maximum) {
      fail(item,
           "expected an integer in [" + std::to_string(minimum) + ", " + std::to_string(maximum) +
               "], found " + shown(list[i]),
           "nearest choice: " + std::to_string(std::clamp(number, minimum, maximum)));
    } else {
      numbers.push_back(number);
    }
  }
  return numbers;
}

const Json& Reader::array(const std::string& key) {
  const Json* value = find(key, "an array");
  if (!value) return kEmptyArray;
  if (!value->is_array())
    return fail(key, "expected an array, found " + shown(*value)), kEmptyArray;
  return *value;
}

const Json& Reader::object(const std::string& key) {
  const Json* value = find(key, "an object");
  if (!value) return kEmptyObject;
  if (!value->is_object())
    return fail(key, "expected an object, found " + shown(*value)), kEmptyObject;
  return *value;
}

Reader Reader::element(const std::string& key, std::size_t index) {
  return Reader{array(key)[index], path_ + "." + key + "[" + std::to_string(index) + "]"};
}

void Reader::absorb(const Reader& nested) {
  if (!error_ && nested.error_) error_ = nested.error_;
}

void Reader::only(const std::vector<std::string>& known) {
  if (!object_->is_object()) return;
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail(key, "unknown field", name_fix(key, known));
  }
}

std::vector<Problem> all_problems() {
  auto problems = planning_problems();
  for (auto& problem : schedule_problems()) problems.push_back(std::move(problem));
  for (auto& problem : balancing_problems()) problems.push_back(std::move(problem));
  return problems;
}

Result<Json> solve(const std::string& name, const std::string& text) {
  const auto problems = all_problems();
  const auto found = std::find_if(problems.begin(), problems.end(),
                                  [&](const Problem& problem) { return problem.name == name; });
  if (found == problems.end()) {
    std::vector<std::string> names;
    for (const auto& problem : problems) names.push_back(problem.name);
    return Error{Errc::not_found, "no problem is called '" + name + "'", "troupe solve",
                 name_fix(name, names)};
  }
  if (auto fault = Faults::of(text)) return std::move(*fault);
  Json input;
  try {
    input = Json::parse(text);
  } catch (const Json::out_of_range& e) {
    return Error{Errc::invalid_argument, "a number is too large: " + without_code(e.what()),
                 "input", "write finite numbers, up to 1e308"};
  } catch (const Json::parse_error& e) {
    return Error{Errc::invalid_argument, "not JSON: " + without_code(e.what()), "input",
                 "write numbers as finite decimals, strings in double quotes, no comma at an end"};
  }
  const auto begin = std::chrono::steady_clock::now();
  auto output = found->run(input);
  if (!output.ok()) return output;
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - begin;
  // A problem that measured its algorithm alone has set the field itself.
  if (!output.value().contains("compute_ms")) output.value()["compute_ms"] = elapsed.count();
  return output;
}

}  // namespace troupe::app
