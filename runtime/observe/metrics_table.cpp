#include "runtime/observe/metrics_table.hpp"

#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/files/read_stream.hpp"

namespace troupe::observe {

namespace {

using Json = nlohmann::json;
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

// Values of `auxiliary_losses` and of the groups of `phases` get a column each; what is nested
// deeper is none that we wrote.
constexpr int kDeepest = 2;

// What is true or false of a step is a number too: 1 or 0.
double number_in(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  return value.is_number() ? value.get<double>() : kMissing;
}

void add_value(const std::string& key, const Json& value, std::size_t before, MetricsTable& table,
               int depth = 0) {
  if (value.is_object() && depth < kDeepest)
    for (const auto& [name, part] : value.items())
      add_value(key + "." + name, part, before, table, depth + 1);
  // A group says what is true alone, so that a mean of it would know nothing else.
  const bool is_told = value.is_boolean() && depth == 0;
  if (!(value.is_number() || value.is_null() || is_told)) return;
  // A key that begins late has no values before.
  auto& column = table.columns.try_emplace(key, before, kMissing).first->second;
  column.push_back(number_in(value));
}

void add_row(const Json& row, MetricsTable& table) {
  const auto before = table.steps.size();
  table.steps.push_back(row.at("step").get<double>());
  for (const auto& [key, value] : row.items()) {
    if (key == "step") continue;
    add_value(key, value, before, table);
  }
  for (auto& [key, column] : table.columns) column.resize(before + 1, kMissing);
  if (row.contains("skipped") && row["skipped"].is_string())
    table.skipped.emplace_back(row["step"].get<std::int64_t>(), row["skipped"].get<std::string>());
}

}  // namespace

Result<MetricsTable> read_metrics(const std::filesystem::path& path) {
  files::ReadStream file(path);
  if (!file)
    return Error{Errc::not_found, "this run has no metrics", path.string(),
                 "give a run folder of `troupe train`"};
  MetricsTable table;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const auto row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_discarded() && (file.eof() || file.peek() == std::char_traits<char>::eof())) {
      table.last_line_cut = true;
      break;
    }
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer())
      return Error{Errc::bad_data, "expected an object with a step on each line",
                   path.string() + ":" + std::to_string(number),
                   "remove that line, or take the file as `troupe train` wrote it"};
    add_row(row, table);
  }
  if (table.steps.empty())
    return Error{Errc::not_found, "no step has ended in this run", path.string(),
                 "wait for its first step, or look at what it logged"};
  return table;
}

}  // namespace troupe::observe
