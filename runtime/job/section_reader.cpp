#include "runtime/job/section_reader.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "runtime/files/look_up.hpp"
#include "runtime/job/key_help.hpp"
#include "runtime/vocabulary/joined.hpp"
#include "runtime/vocabulary/nearest_word.hpp"

namespace troupe::job {

namespace fs = std::filesystem;

namespace {

std::string shown(double x) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), x).ptr;
  return {text.data(), end};
}

}  // namespace

SectionReader::SectionReader(const Value* value, std::string path, Findings& findings)
    : value_(value), path_(std::move(path)), findings_(findings) {
  if (value_ == nullptr) return;
  findings_.origins[path_] = Origin{value_->where()};
  if (value_->table() != nullptr) return;
  findings_.add(Errc::invalid_argument, value_->where(),
                path_ + ": expected a table, found " + value_->shown(),
                "write [" + path_ + "] and its keys below");
  value_ = nullptr;
}

const Value* SectionReader::take(const char* key) {
  known_.emplace_back(key);
  const Value* found = value_ == nullptr ? nullptr : value_->find(key);
  if (found != nullptr) findings_.origins[at(key)] = Origin{found->where()};
  return found;
}

void SectionReader::wrong_type(const char* key, const Value& value, const std::string& expected) {
  findings_.add(Errc::invalid_argument, value.where(),
                at(key) + ": expected " + expected + ", found " + value.shown(),
                std::string("write ") + key + " = " + expected);
}

void SectionReader::flag(const char* key, bool& x) {
  const Value* value = take(key);
  if (value == nullptr) return;
  if (const auto* read = std::get_if<bool>(&value->data))
    x = *read;
  else
    wrong_type(key, *value, "true or false");
}

std::optional<std::int64_t> SectionReader::read_integer(const char* key,
                                                        Range<std::int64_t> range) {
  const Value* value = take(key);
  if (value == nullptr) return std::nullopt;
  const auto* read = std::get_if<std::int64_t>(&value->data);
  if (read == nullptr) return wrong_type(key, *value, "an integer"), std::nullopt;
  if (*read >= range.min && *read <= range.max) return *read;
  findings_.add(
      Errc::invalid_argument, value->where(),
      at(key) + ": " + std::to_string(*read) + " is out of range",
      "give an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max));
  return std::nullopt;
}

std::optional<double> SectionReader::as_number(const Value& value, const std::string& path,
                                               Range<double> range) {
  double read = 0;
  if (const auto* number = std::get_if<double>(&value.data)) {
    read = *number;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    read = static_cast<double>(*integer);
  } else {
    findings_.add(Errc::invalid_argument, value.where(),
                  path + ": expected a number, found " + value.shown(), "write a number");
    return std::nullopt;
  }
  if (read >= range.min && read <= range.max) return read;  // False for NaN too.
  findings_.add(Errc::invalid_argument, value.where(),
                path + ": " + shown(read) + " is out of range",
                "give a number from " + shown(range.min) + " to " + shown(range.max));
  return std::nullopt;
}

std::optional<double> SectionReader::read_number(const char* key, Range<double> range) {
  const Value* value = take(key);
  if (value == nullptr) return std::nullopt;
  return as_number(*value, at(key), range);
}

void SectionReader::pair(const char* key, double& first, double& second, Range<double> range) {
  const Value* value = take(key);
  if (value == nullptr) return;
  const auto* items = value->array();
  if (items == nullptr || items->size() != 2)
    return wrong_type(key, *value, "a list of two numbers");
  const auto one = as_number((*items)[0], at(key) + "[0]", range);
  const auto two = as_number((*items)[1], at(key) + "[1]", range);
  if (one && two) first = *one, second = *two;
}

void SectionReader::numbers(const char* key, std::vector<std::int32_t>& x,
                            Range<std::int64_t> range) {
  const auto* entries = list(key);
  if (entries == nullptr) return;
  std::vector<std::int32_t> read;
  for (std::size_t i = 0; i < entries->size(); ++i) {
    const Value& entry = (*entries)[i];
    const auto* number = std::get_if<std::int64_t>(&entry.data);
    const auto wrong = [&](const std::string& why, const std::string& fix) {
      findings_.add(Errc::invalid_argument, entry.where(),
                    at(key) + "[" + std::to_string(i) + "]: " + why, fix);
    };
    if (number == nullptr) {
      wrong("expected an integer, found " + entry.shown(), "write whole numbers");
    } else if (*number < range.min || *number > range.max) {
      wrong(
          std::to_string(*number) + " is out of range",
          "give an integer from " + std::to_string(range.min) + " to " + std::to_string(range.max));
    } else if (std::find(read.begin(), read.end(), *number) != read.end()) {
      wrong(std::to_string(*number) + " is there twice", "name each once");
    } else {
      read.push_back(static_cast<std::int32_t>(*number));
    }
  }
  if (entries->empty())
    findings_.add(Errc::invalid_argument, findings_.where(at(key)), at(key) + ": names none",
                  "name at least one, or leave it out for all");
  std::sort(read.begin(), read.end());
  x = std::move(read);
}

void SectionReader::text(const char* key, std::string& x) {
  const Value* value = take(key);
  if (value == nullptr) return;
  const auto* read = std::get_if<std::string>(&value->data);
  // On the command line `job.name=7` means the text 7.
  if (read == nullptr && value->typed.empty()) return wrong_type(key, *value, "a \"text\"");
  x = read != nullptr ? *read : value->typed;
}

bool SectionReader::read_word(const char* key, std::string& x,
                              const std::vector<std::string>& words) {
  std::string read;
  const auto problems_before = findings_.problems.size();
  text(key, read);
  const Value* value = value_ == nullptr ? nullptr : value_->find(key);
  if (value == nullptr || findings_.problems.size() > problems_before) return false;
  if (std::find(words.begin(), words.end(), read) != words.end()) return x = read, true;
  const auto near = nearest_word(read, words);
  findings_.add(Errc::invalid_argument, value->where(),
                at(key) + ": '" + read + "' is not one of " + joined(words),
                near.empty() ? "choose one of them" : "did you mean \"" + near + "\"?");
  return false;
}

void SectionReader::input_path(const char* key, fs::path& x) {
  std::string written;
  text(key, written);
  const Value* value = value_ == nullptr ? nullptr : value_->find(key);
  if (value != nullptr && !written.empty()) x = found_path(*value, written, at(key));
}

void SectionReader::input_paths(const char* key, std::vector<fs::path>& x) {
  const auto* entries = list(key);
  if (entries == nullptr) return;
  x.clear();
  for (std::size_t i = 0; i < entries->size(); ++i) {
    const Value& entry = (*entries)[i];
    const auto name = at(key) + "[" + std::to_string(i) + "]";
    const auto* written = std::get_if<std::string>(&entry.data);
    if (written == nullptr || written->empty())
      findings_.add(Errc::invalid_argument, entry.where(), name + ": expected a path",
                    "write it in quotes");
    else
      x.push_back(found_path(entry, *written, name));
  }
}

/// Reported where it is not there.
fs::path SectionReader::found_path(const Value& value, const std::string& written,
                                   const std::string& key) {
  if (findings_.paths == Paths::of_another_machine) return written;
  const fs::path beside = fs::absolute(value.source->folder / written).lexically_normal();
  const fs::path here = fs::absolute(written).lexically_normal();
  auto found = !files::is_there(beside) && files::is_there(here) ? here : beside;
  if (files::is_there(found) || paths_may_be_missing_) return found;
  const std::string also = beside == here ? "" : ", nor is " + here.string();
  findings_.add(Errc::not_found, value.where(),
                key + ": " + beside.string() + " is not there" + also,
                "correct the path; it starts from the job file's folder or the current directory");
  return found;
}

void SectionReader::output_path(const char* key, fs::path& x) {
  std::string written;
  text(key, written);
  if (written.empty()) return;
  x = fs::path(written).lexically_normal();
  // A slash at the end, as shells complete it, would make an empty name of it.
  if (x.filename().empty() && x.has_parent_path()) x = x.parent_path();
}

void SectionReader::duration(Duration& x) {
  std::vector<std::string> given;
  for (const auto& [name, unit] : kDurations) {
    if (value_ != nullptr && value_->find(name) != nullptr) {
      given.emplace_back(name);
      x.unit = unit;
    }
    integer(std::string(name).c_str(), x.amount, kCount);
  }
  if (given.size() == 1) return;
  const auto where = given.empty() ? findings_.where(path_) : value_->find(given.back())->where();
  findings_.add(
      Errc::invalid_argument, where,
      path_ + ": how long to train is " + (given.empty() ? "missing" : "said by " + joined(given)),
      "give exactly one of steps, epochs, samples, tokens");
}

const Value::Array* SectionReader::list(const char* key) {
  const Value* value = take(key);
  if (value == nullptr) return nullptr;
  if (value->array() == nullptr) wrong_type(key, *value, "a list");
  return value->array();
}

std::vector<const Member*> SectionReader::rest() {
  std::vector<const Member*> members;
  if (value_ == nullptr) return members;
  for (const auto& member : *value_->table())
    if (std::find(known_.begin(), known_.end(), member.key) == known_.end())
      members.push_back(&member);
  for (const auto* member : members) known_.push_back(member->key);
  return members;
}

void SectionReader::finish() {
  const auto known = known_;
  for (const auto* member : rest())
    findings_.add(Errc::invalid_argument, member->value.where(), at(member->key) + ": unknown key",
                  help_for_unknown(path_, member->key, known));
}

}  // namespace troupe::job
